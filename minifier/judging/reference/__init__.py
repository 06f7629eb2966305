"""What a run in float64 needs, the reference of a comparison: equal random numbers and dtypes."""
