"""Kernels as C++, for CPUs."""
