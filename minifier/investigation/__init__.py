"""From a failure to a report: minimise, bisect, compare stages, write and verify repros."""
