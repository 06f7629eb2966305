"""What a caller configures: options, sizes for CUDA graphs, stages of its own."""
