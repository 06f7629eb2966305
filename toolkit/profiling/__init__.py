"""Joins the profile of a script with the graphs, nodes and lines of its kernels."""
