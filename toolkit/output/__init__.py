"""What was found, for other programs and for a bug report."""
