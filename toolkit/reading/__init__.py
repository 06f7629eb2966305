"""Turns the events of a run into data: summaries, spans, selections, comparisons."""
