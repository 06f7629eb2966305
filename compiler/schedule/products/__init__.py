"""Products of matrices, fused with the pointwise work around them."""
