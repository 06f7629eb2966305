"""Writes runs as one HTML file: its data, and the page."""
