"""Finds the version of torch in which a failure began or ended."""
