"""The process group of a rank that runs alone: torch's fake one, which needs no other process.

Its collectives return at once. What other ranks would send is replaced by what this rank sends. The
fake group of older versions of torch (2.11) leaves some results unwritten, and the futures of its
collectives have no values, which DistributedDataParallel reads. `write_results` mends both.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.subclasses.apart import taken_apart
from tcdebug.minifier.cases.subclasses.text import distributed
from tcdebug.minifier.processes.job import Rank

SENTINEL = 7.0
FAKE = "fake"
"""The name of the backend of torch's fake process group."""


COLLECTIVES = ("c10d", "torch.distributed")
"""Parts of the names of operators that communicate with other ranks."""


class NoFakeGroup(Exception):
    """This torch cannot run a rank alone; the message says why."""


def communicates(case: Case) -> bool:
    """Return whether a graph waits for other ranks, or may: an operator on DTensors."""
    named = any(part in _named(node.target) for node in case.calls for part in COLLECTIVES)
    return named or distributed(taken_apart(case.values()).values)


def _named(target: object) -> str:
    return f"{getattr(target, '__module__', '')} {target}"


def group_of(case: Case) -> Rank | None:
    """Return the place of this process in the group that a graph needs; None if it needs none."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if not communicates(case):
        return None
    numbers = (torch.distributed.get_rank(), torch.distributed.get_world_size())
    names = ("RANK", "WORLD_SIZE")
    return Rank("", [], {n: str(v) for n, v in zip(names, numbers, strict=True)})


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


def write_results(rank: int) -> torch.library.Library:
    """Give results and futures to the collectives of the fake group, for a rank with this number.

    Results are written where the fake group of an older torch leaves them unwritten. This lasts
    until `_destroy` of the result is called.
    """
    return _library({} if results_are_written() else WRITERS, IN_PLACE, rank)


def replace_collectives(rank: int) -> torch.library.Library:
    """Give results to all collectives of any group, as a fake group would.

    This lasts until `_destroy` of the result is called.
    """
    return _library({**WRITERS, **GATHERERS}, (*IN_PLACE, *WAITING), rank)


def _library(
    writers: Mapping[str, Callable[[Any, Any, int], None]], leaving: Sequence[str], rank: int
) -> torch.library.Library:
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call] # not annotated
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is what is wanted
        kernels = {name: _writing(name, write, rank) for name, write in writers.items()}
        kernels |= {name: _leaving(name) for name in leaving}
        for name, kernel in kernels.items():
            for key in ("CPU", "CUDA"):
                alone = torch.compiler.disable(kernel)  # type: ignore[no-untyped-call] # the same; Dynamo would compile the kernel
                library.impl(name, alone, key)  # type: ignore[no-untyped-call] # the same
    return library


def _writing(name: str, write: Callable[[Any, Any, int], None], rank: int) -> Callable[..., Any]:
    """Return a kernel of an operator of c10d: results first, then what is sent, then the group."""

    def kernel(received: Any, sent: Any, *_others: Any, **_named: Any) -> Any:
        write(received, sent, rank)
        return _answer(name, received, sent)

    return kernel


def _leaving(name: str) -> Callable[..., Any]:
    """Return a kernel of an operator whose results are what this rank gives."""
    return lambda tensors, *_others, **_named: _answer(name, tensors, tensors)


def _answer(name: str, received: Any, sent: Any) -> Any:
    """Return what an operator of c10d returns: its results, if any, and a finished `Work`."""
    create = pkgutil.resolve_name("torch._C._distributed_c10d:_create_work_from_future")
    device = _first(sent, received).device
    future: Any = torch.futures.Future(devices=[] if device.type == "cpu" else [device])
    future.set_result(list(_tensors(received)))
    work = create(future).boxed()
    returns = getattr(torch.ops.c10d, name).default._schema.returns
    return (received, work) if len(returns) == 2 else work


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    for part in value:
        yield from _tensors(part)


def _first(*values: Any) -> torch.Tensor:
    """Return the first tensor in nested lists."""
    found = next(_tensors(values), None)
    if found is None:
        raise ValueError("a collective without tensors")
    return found


def _copy_each(received: Sequence[torch.Tensor], sent: Sequence[torch.Tensor], _rank: int) -> None:
    for out, own in zip(received, sent, strict=False):
        out.copy_(own)


def _own_part(received: torch.Tensor, sent: torch.Tensor, rank: int) -> None:
    parts = sent.numel() // max(received.numel(), 1)
    if parts:
        received.copy_(sent.chunk(parts)[rank % parts].view_as(received))


def _own_parts(received: Sequence[torch.Tensor], sent: Sequence[torch.Tensor], rank: int) -> None:
    for out, own in zip(received, sent, strict=True):
        _own_part(out, own, rank)


def _own_elements(
    received: Sequence[torch.Tensor], sent: Sequence[Sequence[torch.Tensor]], rank: int
) -> None:
    """Copy this rank's element of each list; in a scatter by another rank there is none."""
    for out, own in zip(received, sent, strict=False):
        out.copy_(own[rank % len(own)])


def _same_for_all(
    received: Sequence[Sequence[torch.Tensor]], sent: Sequence[torch.Tensor], _rank: int
) -> None:
    """Copy what this rank sends to each place; only the root of a gather has places."""
    for place, outs in enumerate(received):
        for out in outs:
            out.copy_(sent[place])


def _same_for_all_ranks(
    received: Sequence[Sequence[torch.Tensor]], sent: Sequence[torch.Tensor], _rank: int
) -> None:
    for outs in received:
        _copy_each(outs, sent, _rank)


def _repeated(received: torch.Tensor, sent: torch.Tensor, _rank: int) -> None:
    """Fill the result with repetitions of what is sent."""
    if sent.numel() and received.numel():
        times = -(-received.numel() // sent.numel())
        received.copy_(sent.reshape(-1).repeat(times)[: received.numel()].view_as(received))


def _each_repeated(
    received: Sequence[torch.Tensor], sent: Sequence[torch.Tensor], rank: int
) -> None:
    for out, own in zip(received, sent, strict=True):
        _repeated(out, own, rank)


WRITERS: dict[str, Callable[[Any, Any, int], None]] = {
    "allgather_coalesced_": _same_for_all_ranks,
    "reduce_scatter_": _own_elements,
    "_reduce_scatter_base_": _own_part,
    "reduce_scatter_tensor_coalesced_": _own_parts,
    "alltoall_": _copy_each,
    "alltoall_base_": _repeated,
    "gather_": _same_for_all,
    "scatter_": _own_elements,
}
"""What writes the results of each operator of c10d that torch 2.11 leaves unwritten."""

GATHERERS: dict[str, Callable[[Any, Any, int], None]] = {
    "allgather_": _same_for_all,
    "_allgather_base_": _repeated,
    "allgather_into_tensor_coalesced_": _each_repeated,
}
"""The same for the operators whose results every fake group writes."""

WAITING = ("barrier", "send", "recv_", "recv_any_source_")
"""Operators of c10d that only wait for another rank, or leave what it would send as it is."""

IN_PLACE = ("allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_")
"""Operators of c10d that leave what this rank gives, as it is, but whose futures need values."""
