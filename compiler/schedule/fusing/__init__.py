"""Which nodes share a loop nest, in what order they run, and why that is right."""
