"""The oracles for Python programs that are called several times."""
