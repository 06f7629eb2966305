"""Runs one rank of a distributed job as a single process.

Its process group is torch's fake one, with the rank and size of the real one. Collectives return at
once: what other ranks would send is replaced by what this rank sends. Values differ from those of
the job, but they are the same in eager and compiled. A graph that communicates can therefore be
judged, and candidates on a GPU can be forked as from any script.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.processes.job import Rank

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

UNWRITTEN = (
    "allgather_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_", "alltoall_", "alltoall_base_", "gather_", "scatter_",
)  # fmt: skip
"""Operators of c10d whose results the fake group of older versions of torch leaves unwritten."""
SENTINEL = 7.0


class NoFakeGroup(Exception):
    """This torch cannot run a rank alone; the message says why."""


class UnwrittenResult(RuntimeError):
    """A script that runs as one rank called a collective that has no result there."""


@contextlib.contextmanager
def one_rank(rank: Rank, log: EventLog) -> Iterator[None]:
    """Create fake process groups in this block, with the rank's place. Raises NoFakeGroup.

    If this torch's fake group leaves the results of some collectives unwritten, these raise
    UnwrittenResult, in eager too. A graph that calls one is then not judged.
    """
    with contextlib.ExitStack() as stack:
        if not results_are_written():
            stack.callback(_refuse_unwritten()._destroy)
        for patch in INIT:
            stack.enter_context(patched(patch, functools.partial(_fake_init, rank), log))
        for patch in NEW_GROUP:
            stack.enter_context(patched(patch, _like_the_default_group, log))
        yield


def results_are_written() -> bool:
    """Return whether collectives of the fake group derive all results from this rank's tensors.

    Raises NoFakeGroup if there is no such group, or if it leaves even all_gather's unwritten.
    """
    try:
        from torch._C._distributed_c10d import FakeProcessGroup  # noqa: PLC0415 - not in every build of torch

        group: Any = FakeProcessGroup._create_internal(1, 2)
        gathered, received = torch.full((2,), SENTINEL), torch.full((1,), SENTINEL)
        group._allgather_base(gathered, torch.tensor([3.0])).wait()
        group._reduce_scatter_base(received, torch.tensor([1.0, 2.0])).wait()
    except Exception as problem:
        raise NoFakeGroup(f"{type(problem).__name__}: {problem}") from problem
    if gathered.tolist() != [3.0, 3.0]:
        raise NoFakeGroup("its fake process group leaves results of all_gather unwritten")
    return received.item() == 2.0


def _refuse_unwritten() -> torch.library.Library:
    """Let the collectives in UNWRITTEN raise until the result is destroyed."""
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call] # not annotated

    def refusal(name: str) -> Callable[..., None]:
        def refuse(*_args: Any, **_kwargs: Any) -> None:
            raise UnwrittenResult(f"this torch's fake process group has no result of {name}")

        return refuse

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is what is wanted
        for name in UNWRITTEN:
            for key in ("CPU", "CUDA"):
                library.impl(name, refusal(name), key)  # type: ignore[no-untyped-call] # the same
    return library


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
