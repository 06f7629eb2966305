"""Run a case eagerly and compiled, and decide whether the compiled result is wrong."""
