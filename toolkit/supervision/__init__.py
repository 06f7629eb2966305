"""Starts sessions, shows what they do, and keeps the budget. No torch."""
