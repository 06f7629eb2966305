"""Finds the decisions of a compiler that are at fault, and confirms them with stated confidence."""
