"""Reductions that take objects and classes of a script apart."""
