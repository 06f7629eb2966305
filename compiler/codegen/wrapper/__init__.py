"""Writes the schedule as a Python function that launches kernels and calls ATen."""
