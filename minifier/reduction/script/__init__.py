"""Reductions of a script on its syntax tree. Nothing of the script is run here."""
