"""Lowerings that write to places given by data, and to inputs of the graph."""
