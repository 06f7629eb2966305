"""Conversions of float16 numbers that are neighbours in memory."""
