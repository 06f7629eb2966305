"""Divides reductions and scans of few long rows, before nodes are fused."""
