"""Reductions of sizes, dtypes, values and arguments, for a graph that has few operators left."""
