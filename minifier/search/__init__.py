"""Search algorithms over a predicate, repeated runs of flaky questions, asking ahead. No torch."""
