"""Starts sessions, shows their progress, and keeps the budget. Does not import torch."""
