"""The gate that every optional step asks, and the toggles that it answers by."""
