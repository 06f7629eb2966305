"""Tensor subclasses that are made of plain tensors: DTensor, jagged NestedTensor, and others."""
