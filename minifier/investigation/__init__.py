"""Leads from a failure to a report: minimises, bisects, compares stages, writes repros."""
