"""Reductions that remove operators from a graph."""
