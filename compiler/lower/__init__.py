"""The lower stage: turns an ATen graph into loop IR."""
