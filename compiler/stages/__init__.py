"""Runs the stages of a compile: timing, events, printed IR, and recovery from failures."""
