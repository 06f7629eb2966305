"""partition.donate: let backward write over saved tensors that nothing else reads.

AOTAutograd lists the saved tensors that share no memory with other tensors of the traced program.
It raises if a caller keeps the graph for a second backward while the list is not empty.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Extern, Ref, memory_of, written
from tcdebug.compiler.schedule.in_place import FRESH
from tcdebug.compiler.schedule.kernel import Schedule

UNIT = "partition.donate"


def donated(backward: fx.GraphModule, gate: Gate) -> frozenset[str]:
    """Return the inputs of the backward being compiled that it may write over."""
    names = sorted(_listed(backward))
    return frozenset(names) if names and gate.allows(UNIT, ", ".join(names)) else frozenset()


def report(module: fx.GraphModule, schedule: Schedule, direction: str) -> None:
    """Narrow AOTAutograd's list to what the compiled graph allows.

    After forward, tensors are left that share no memory in the compiled graph either, where a copy
    may have been removed. After backward, those are left that it writes over: a caller may keep the
    graph if there are none.
    """
    if not (metadata := _metadata()):
        return
    listed = metadata.bw_donated_idxs
    if direction == "forward":
        first = metadata.num_forward - (metadata.num_symints_saved_for_bw or 0)
        own = _results_with_own_memory(schedule)
        listed[:] = [place for place in listed if first + place in own]
    elif direction == "backward":
        over = {m for kernel in schedule.kernels() for node in kernel.nodes for m in written(node)}
        listed[:] = [place for name, place in _listed(module).items() if name in over]


def _listed(backward: fx.GraphModule) -> dict[str, int]:
    """The donated inputs of a backward -> their positions.

    AOTAutograd lists a tensor although its view is saved too. If forward runs in eager because it
    failed to compile, nothing else removes these from the list.
    """
    metadata = _metadata()
    given = backward.graph.find_nodes(op="placeholder")
    storages = [_storage(node.meta.get("val")) for node in given]
    listed, shared = metadata.bw_donated_idxs if metadata else (), Counter(storages)
    return {given[k].name: k for k in listed if shared[storages[k]] == 1}


def _storage(value: Any) -> int:
    strided = isinstance(value, torch.Tensor) and seams.is_strided(value)
    return seams.storage_id(value) if strided else 0


def _metadata() -> Any:
    """What AOTAutograd knows of the graph being compiled; None without donated tensors."""
    metadata = seams.traced_metadata()
    return metadata if metadata is not None and metadata.bw_donated_idxs else None


def _results_with_own_memory(schedule: Schedule) -> set[int]:
    """Return the positions of results in memory that the graph allocates for them alone."""
    graph = schedule.graph
    memory = memory_of(graph.nodes)
    fresh = {n.name for n in graph.nodes if not isinstance(n, Extern) or n.target in FRESH}
    owners = [memory.get(o.name, o.name) if isinstance(o, Ref) else "" for o in graph.outputs]
    shared = Counter(owners)
    return {k for k, owner in enumerate(owners) if owner in fresh and shared[owner] == 1}
