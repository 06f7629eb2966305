"""Turns a failure into a report: minimises it, bisects it, compares stages, and writes a repro."""
