"""Profiles a running program, and records where the kernels of its graphs come from."""
