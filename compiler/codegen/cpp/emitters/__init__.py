"""Writes expressions in C++ into open loops, and what is done before and after these."""
