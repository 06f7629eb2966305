"""Checks of the text of a script and its versions, made without a run."""
