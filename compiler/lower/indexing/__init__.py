"""Lowerings that move elements: views, gathers, joins, searches."""
