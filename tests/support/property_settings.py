"""Settings of the properties that Hypothesis checks: the same examples in every run, or new ones.

The default run draws the same examples each time, so that it fails only where the code changed.
`HYPOTHESIS_PROFILE=explore pytest` explores: it draws new examples, many more of them,
and keeps those that failed.
"""

from __future__ import annotations

import os

from hypothesis import settings

EXPLORING = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
MORE = 20
"""How many times as many examples are drawn while exploring."""


def property_settings(examples: int) -> settings:
    """The settings of a property that the default run checks with so many examples."""
    if EXPLORING:
        return settings(deadline=None, max_examples=MORE * examples)
    return settings(derandomize=True, deadline=None, max_examples=examples, database=None)
