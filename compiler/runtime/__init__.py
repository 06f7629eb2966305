"""The runtime stage: builds, loads and launches kernels."""
