"""What every target language shares: a kernel with addresses, its sweeps, its call."""
