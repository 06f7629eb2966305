"""Compares the values of compiled graphs with eager, kernel by kernel, while a script runs."""
