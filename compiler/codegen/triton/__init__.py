"""Writes kernels for NVIDIA GPUs in Triton. Only `library`, which kernels import, imports triton.
"""
