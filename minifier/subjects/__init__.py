"""The things that can fail, and how each is run, reduced and written as a repro."""
