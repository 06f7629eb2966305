"""Runs as one HTML file: the data in it, the page around them."""
