"""Arithmetic on bfloat16 and float16 numbers as floats."""
