"""Intercepts a program's graphs on their way to its backends: recording, capturing, watching."""
