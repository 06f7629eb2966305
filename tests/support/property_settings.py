"""Settings for Hypothesis properties: the same examples in every run, or new ones.

The default run draws the same examples each time, so that it fails only if the code has changed.
`HYPOTHESIS_PROFILE=explore pytest` draws many more, new examples, and keeps those that fail.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXPLORING = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
MORE = 20
"""Exploring draws this many times as many examples."""
TIMED = (HealthCheck.too_slow,)
"""Checks of wall time, which fail on a busy machine."""


def property_settings(examples: int) -> settings:
    """The settings of a property that the default run checks with this many examples."""
    if EXPLORING:
        return settings(deadline=None, max_examples=MORE * examples, suppress_health_check=TIMED)
    return settings(
        derandomize=True, deadline=None, max_examples=examples, database=None,
        suppress_health_check=TIMED,
    )  # fmt: skip
