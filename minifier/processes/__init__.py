"""Starts, limits, watches and kills the processes that candidates and scripts run in."""
