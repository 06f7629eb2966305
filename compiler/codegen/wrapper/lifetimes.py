"""Finds the step after which each value of a schedule is dead, and the memory kept for reuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.graph import Buffer, extern_refs, output_refs
from tcdebug.compiler.schedule.kernel import Kernel, Schedule

LITTLE = 1 << 20
"""The largest dead buffer on a GPU, in bytes, that is kept for reuse."""


@dataclass(frozen=True)
class ValueLifetimes:
    """The lifetimes of the values of a schedule. Steps are given by their position."""

    schedule: Schedule
    calls: Mapping[str, KernelCall]
    buffers: Mapping[str, Buffer]

    @cached_property
    def memory(self) -> dict[str, str]:
        """Value -> the value whose memory a kernel stores it over."""
        return {n: memory for c in self.calls.values() for n, memory in c.into.items()}

    @cached_property
    def last_use(self) -> Mapping[str, int]:
        """Value -> the last step that reads it, without values that the graph returns."""
        last: dict[str, int] = {}
        for position, step in enumerate(self.schedule.steps):
            names: Sequence[str]
            if isinstance(step, Kernel):
                call = self.calls[step.name]
                names = (*call.loads, *call.parameters, *call.stores, *call.into.values())
            else:
                names = (*extern_refs(step), step.name)
            last.update(dict.fromkeys(names, position))
        for name in output_refs(self.schedule.graph):
            last.pop(name, None)
        # memory lives as long as every value stored over it
        for name, memory in reversed(self.memory.items()):
            if name not in last:
                last.pop(memory, None)
            elif memory in last:
                last[memory] = max(last[memory], last[name])
        return last

    def ending_at(self, position: int) -> Sequence[str]:
        """Return the values that a step is the last to read."""
        return self._ending.get(position, ())

    @cached_property
    def _ending(self) -> Mapping[int, Sequence[str]]:
        ending: dict[int, list[str]] = {}
        for name, position in self.last_use.items():
            ending.setdefault(position, []).append(name)
        return ending

    def keeps_memory(self, buffer: Buffer, position: int) -> bool:
        """Return whether the memory of a value that dies at a step is kept for a later kernel.

        On a GPU, where allocation is cheap, only little memory is kept.
        """
        little = buffer.device.type == "cpu" or bytes_of(buffer) <= LITTLE
        return little and self._last_wanted.get(layout_of(buffer), -1) > position

    @cached_property
    def _last_wanted(self) -> Mapping[tuple[Any, ...], int]:
        """Layout -> the last step that allocates memory of that layout."""
        return {
            layout_of(self.buffers[name]): position
            for position, step in enumerate(self.schedule.steps)
            if isinstance(step, Kernel)
            for name in self.calls[step.name].stores
            if name not in self.calls[step.name].into
        }


def layout_of(buffer: Buffer) -> tuple[Any, ...]:
    """Return what memory must have in common with a buffer to be used for it."""
    return (buffer.dtype, buffer.size, buffer.stride, buffer.device)
