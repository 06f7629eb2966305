"""A failing graph, its inputs, the state around it, and its outcome."""
