"""The configuration by a caller: options, sizes for CUDA graphs, replaced stages."""
