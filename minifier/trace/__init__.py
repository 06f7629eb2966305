"""Translates torch's structured trace to events."""
