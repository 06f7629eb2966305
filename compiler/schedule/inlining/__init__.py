"""Which pointwise values are computed again instead of stored, and which never are."""
