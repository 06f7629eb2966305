"""Shows what was found in a script that ran."""
