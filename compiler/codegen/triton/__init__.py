"""Kernels as Triton, for NVIDIA GPUs. Nothing here imports triton but what kernels import."""
