"""A failing graph with its inputs, the state around it, and what became of it."""
