"""Checks whether a reused graph is still valid for what it was captured from."""
