"""Fuses matrix products with the pointwise work around them."""
