"""Lowerings of the special functions of mathematics."""
