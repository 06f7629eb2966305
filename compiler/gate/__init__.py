"""The gate, which decides every optional step, and the toggles that determine its answers."""
