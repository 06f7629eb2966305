"""Computes the values in a graph for a GPU, which replace calls of a reduced graph.

The process that reduces a graph must not initialise CUDA, so it computes values on the CPU. A
kernel of the program cannot run there. Then a child computes all values once, on their devices.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.placement import devices
from tcdebug.minifier.reduction.operators.surgery import TooLarge, node_values

MOST_BYTES = 1 << 28
"""The limit on the values that a child returns, in bytes."""


Work = Callable[[Case], bytes]


class DeviceValues:
    """The results of calls in eager, by the names of their nodes, of one graph after another."""

    def __init__(self, on_devices: Callable[[Case, Work], bytes]) -> None:
        """`on_devices` does work in a process in which the graph is on its devices."""
        self._on_devices = on_devices
        self._known: tuple[str, Mapping[str, Any]] = ("", {})

    def __call__(self, case: Case, wanted: Collection[str]) -> Mapping[str, Any]:
        """Return the wanted values as CPU tensors. Raises TooLarge, or what the graph raises."""
        try:
            return node_values(case, wanted)
        except TooLarge:
            raise
        except Exception:
            if not devices(case):
                raise
        if self._known[0] != case.key:
            self._known = (case.key, pickle.loads(self._on_devices(case, _all_values)))
        return {name: value for name, value in self._known[1].items() if name in wanted}


def _all_values(case: Case) -> bytes:
    return pickle.dumps(fx.node.map_aggregate(node_values(case, most_bytes=MOST_BYTES), _on_cpu))


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
