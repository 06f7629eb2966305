"""Removes statements: those that nothing needs, and any others without which a script fails."""
