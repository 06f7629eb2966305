"""Arithmetic on sizes, strides and loop indices."""
