"""The runtime stage: source becomes callables."""
