"""The schedule stage: turns loop IR into an ordered list of kernels and extern calls."""
