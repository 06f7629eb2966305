"""Tests that take longest run first, so that several processes end at about the same time."""

from __future__ import annotations

import pytest

LONG = "test_a_planted_fault_is_named_with_a_repro"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move bisections to the front. The other tests keep their order."""
    items.sort(key=lambda item: LONG not in item.name)
