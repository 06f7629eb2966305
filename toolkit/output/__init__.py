"""Results for other programs and for bug reports."""
