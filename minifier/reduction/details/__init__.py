"""Reductions of sizes, dtypes, values and arguments once the operators are few."""
