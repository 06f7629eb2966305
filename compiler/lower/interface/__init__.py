"""The interface of lowerings: the node, tensors as functions of an index, and sizes."""
