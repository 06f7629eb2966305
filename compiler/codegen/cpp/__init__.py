"""Writes kernels for CPUs in C++."""
