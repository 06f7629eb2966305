"""Compiles, loads and launches Triton kernels on NVIDIA GPUs, and captures CUDA graphs."""
