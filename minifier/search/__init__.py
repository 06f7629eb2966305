"""Search algorithms over a predicate, repeats of a flaky answer, and asking ahead. No torch."""
