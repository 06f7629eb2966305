"""The lower stage: the ATen graph becomes loop IR."""
