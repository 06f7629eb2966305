"""Strategies for Python programs: functions, the state they use, and a sequence of calls."""
