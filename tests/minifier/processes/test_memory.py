"""Shared memory counts once, and file-backed pages do not count."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Limits, finished

LIMIT = 200 << 20
MOST_OF_THE_LIMIT, BEYOND_THE_LIMIT = 150 << 20, 300 << 20


@pytest.fixture(autouse=True)
def large_parent() -> Iterator[bytearray]:
    """Make this process hold more memory than a child may add."""
    yield filled(2 * LIMIT)


def filled(size: int) -> bytearray:
    """Return resident bytes."""
    return bytearray(b"x") * size


def forked(count: int, work: Callable[[], object] = lambda: None) -> None:
    """Fork this many children, each of which does some work and stays."""
    for _ in range(count):
        if os.fork() == 0:
            kept = work()
            time.sleep(1000)
            del kept


def is_over_memory(work: Callable[[], object]) -> bool:
    """Return whether a child that does some work and stays exceeds its memory, not its time."""

    def stay(parent: Parent) -> bytes:
        kept = work()
        time.sleep(1000)
        del kept
        return b""

    ended = finished(fork(stay, Limits(1.5, LIMIT)))
    assert ended.over_memory != ended.timed_out
    return ended.over_memory


def test_forked_children_do_not_count_what_the_parent_holds() -> None:
    """For example, data loader workers are forked from a script that holds much data."""
    assert not is_over_memory(lambda: forked(4))


def test_a_page_that_forked_children_share_counts_once() -> None:
    def work() -> bytearray:
        kept = filled(MOST_OF_THE_LIMIT)
        forked(3)
        return kept

    assert not is_over_memory(work)


def test_memory_that_forked_children_add_counts() -> None:
    assert is_over_memory(lambda: forked(2, lambda: filled(MOST_OF_THE_LIMIT)))


def test_shared_memory_counts() -> None:
    def work() -> mmap.mmap:
        shared = mmap.mmap(-1, BEYOND_THE_LIMIT)
        shared.write(filled(BEYOND_THE_LIMIT))
        return shared

    assert is_over_memory(work)


def test_pages_of_a_file_do_not_count() -> None:
    """For example, a forked child maps pages of torch's libraries again when it touches them."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    times = 1 + 4 * LIMIT // library.stat().st_size

    def work() -> list[mmap.mmap]:
        with library.open("rb") as file:
            maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for _ in range(times)]
        assert all(sum(one[at] for at in range(0, len(one), mmap.PAGESIZE)) for one in maps)
        return maps

    assert not is_over_memory(work)
