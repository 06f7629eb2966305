"""Lowerings that combine elements: reductions, scans, pooling."""
