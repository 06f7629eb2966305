"""Processes that are forked from one that has imported torch."""
