"""Hypothesis strategies: programs for torch.compile that are valid by construction."""
