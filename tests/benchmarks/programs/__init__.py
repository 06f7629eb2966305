"""Programs that `sweep.py` measures, made in families by the hundred."""
