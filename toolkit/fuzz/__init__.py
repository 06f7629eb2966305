"""Fuzzing: generated programs are judged in separate processes, and failures kept as findings."""
