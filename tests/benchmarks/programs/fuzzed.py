"""Programs of `tcdebug fuzz`, with larger tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from torch import Tensor
from torch.nn import functional as F

from programs.program import Made, Place, Program
from tcdebug.strategies.devices import Device, Extents
from tcdebug.strategies.programs import programs as strategy

COUNT = 120
EXTENTS = Extents((64, 257, 1024, 31, 8, 128, 1), 1 << 21)


def programs(place: Place) -> Iterator[Program]:
    """The valid programs of two lines or more among the first that are drawn."""
    sources: list[str] = []

    @seed(0)
    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy(longest=8, units=(), device=Device(place.device, (EXTENTS,))))
    def draw(program: Any) -> None:
        if not program.invalid and not program.dynamic and len(program.ops) > 1:
            sources.append(program.source())

    draw()
    for number, source in enumerate(dict.fromkeys(sources)):
        yield Program(f"fuzzed/{number}", "fuzzed", lambda source=source: _from_source(source))


def _from_source(source: str) -> Made:
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(source, names)
    written = _written(names)
    inputs = tuple(names["inputs"]())
    leaves = tuple(t for t in inputs if isinstance(t, Tensor) and t.requires_grad)
    return Made(names["Graph"](), inputs, leaves, updated=tuple(inputs[i] for i in written))


def _written(names: dict[str, Any]) -> list[int]:
    """The positions of the inputs that a call of a program updates."""
    inputs = names["inputs"]()
    given = {i: t._version for i, t in enumerate(inputs) if isinstance(t, Tensor)}
    names["Graph"]()(*inputs)
    return [i for i, version in given.items() if inputs[i]._version != version]
