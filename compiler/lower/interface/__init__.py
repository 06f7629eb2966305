"""What lowerings are written against: the node, tensors as functions of an index, sizes."""
