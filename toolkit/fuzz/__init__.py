"""Fuzzing: drawn programs, judged in processes of their own; what fails is kept as a finding."""
