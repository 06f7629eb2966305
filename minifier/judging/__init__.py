"""Runs a case eagerly and compiled, and decides whether the compiled result is wrong."""
