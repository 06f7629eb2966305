"""Tests that take longest start first, so that several processes end at about the same time."""

from __future__ import annotations

import os
import sys
from itertools import zip_longest

import pytest

LONGEST = (
    "[race]",
    "[hang]",
    "kernels_of_the_script",
    "[created",
    "planted_fault_is_named",
    "on_the_cpu_is_bisected",
    "finding_still_differs",
)
"""Parts of the names of tests, the longest first."""


def place(item: pytest.Item) -> int:
    """Return the index of the first part of LONGEST that the name of a test contains."""
    return next((i for i, part in enumerate(LONGEST) if part in item.name), len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move long tests to the front, each followed by a short one. Others keep their order.

    A process begins with two tests, so that no two long ones wait for each other.
    """
    items.sort(key=place)
    count = sum(place(item) < len(LONGEST) for item in items)
    both = zip_longest(items[:count], items[count : 2 * count])
    items[: 2 * count] = [item for pair in both for item in pair if item is not None]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show why a test has failed at once, because a run that is cut short shows nothing later."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stderr.write(f"\n{report.nodeid}\n{report.longreprtext}\n")
