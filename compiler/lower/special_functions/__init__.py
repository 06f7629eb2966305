"""Lowerings of special functions, such as Bessel and gamma functions."""
