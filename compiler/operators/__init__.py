"""Operators of this compiler's own, registered with torch."""
