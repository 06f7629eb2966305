"""Asks what a candidate does under toggles: scheduling of runs, remembered answers, failures."""
