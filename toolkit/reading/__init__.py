"""What the events of a run say, as data: sums, spans, selections, comparisons. Prints nothing."""
