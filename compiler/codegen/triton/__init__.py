"""Writes Triton kernels for NVIDIA GPUs. Only `library`, which kernels import, imports triton."""
