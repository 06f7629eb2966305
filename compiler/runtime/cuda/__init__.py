"""Triton kernels on NVIDIA GPUs: compile, load, launch, capture in graphs."""
