"""Lowerings of elementwise operators, and of operators that make tensors."""
