"""Lowerings that write to indices given by data, or to inputs of the graph."""
