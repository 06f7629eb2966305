"""The schedule stage: loop IR becomes kernels and extern calls in the order in which they run."""
