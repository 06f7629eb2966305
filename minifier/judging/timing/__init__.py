"""Judges whether a program compiles or runs too slowly, and what a measurement of time is worth."""
