"""Lowerings that compute each element from the elements at one place."""
