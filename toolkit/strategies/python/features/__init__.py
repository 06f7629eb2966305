"""The tables of features: one file per topic, one row per feature."""
