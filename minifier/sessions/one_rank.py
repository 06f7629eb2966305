"""Runs one rank of a distributed job as a single process, or judges one graph in this way.

Its process group is torch's fake one, with the rank and size of the real one. Collectives return at
once: what other ranks would send is replaced by what this rank sends. Values differ from those of
the job, but they are the same in eager and compiled. A graph that communicates can therefore be
judged, and candidates on a GPU can be forked as from any script.

A rank that runs with the others has a real group. Candidates cannot use it: the others wait in the
script, and a fork has none of the threads that communicate. While a graph that communicates is
judged there, its collectives return at once too.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.processes.job import Rank
from tcdebug.minifier.repros.fake_group import FAKE, replace_collectives, write_results

MODULES = (
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.distributed.device_mesh",
)
"""The modules that hold the functions that create process groups."""
LOST = "a rank that runs alone waits for the others"
INIT = tuple(Patch(m, "init_process_group", LOST, ("backend", "rank", "store")) for m in MODULES)
NEW_GROUP = tuple(Patch(m, "new_group", LOST, ("backend", "pg_options")) for m in MODULES)
PATCHES = (*INIT, *NEW_GROUP)
REPLACED = (
    "the graph communicates, and was judged as {} alone: what other ranks would send was replaced "
    "by what it sends itself"
)


@contextlib.contextmanager
def one_rank(rank: Rank, log: EventLog) -> Iterator[None]:
    """Create fake process groups in this block, with the rank's place. Raises NoFakeGroup."""
    with contextlib.ExitStack() as stack:
        stack.callback(write_results(rank.rank)._destroy)
        for patch in INIT:
            stack.enter_context(patched(patch, functools.partial(_fake_init, rank), log))
        for patch in NEW_GROUP:
            stack.enter_context(patched(patch, _like_the_default_group, log))
        yield


def _fake_init(rank: Rank, original: Callable[..., None]) -> Callable[..., None]:
    def init_process_group(*_args: Any, **_kwargs: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - registers the backend, which few scripts need

        original("fake", rank=rank.rank, world_size=rank.world_size, store=FakeStore())

    return init_process_group


def _like_the_default_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_group(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        for name in ("backend", "pg_options", "device_id"):
            given.pop(name, None)
        return original(**given)

    return new_group


@contextlib.contextmanager
def collectives_replaced(group: Rank | None) -> Iterator[bool]:
    """Let collectives return at once in this block and its forks. Yield whether that was needed.

    It is not if there is no group, or if the group is torch's fake one.
    """
    if group is None or torch.distributed.get_backend() == FAKE:
        yield False
        return
    library = replace_collectives(group.rank)
    try:
        yield True
    finally:
        library._destroy()  # type: ignore[no-untyped-call] # not annotated
