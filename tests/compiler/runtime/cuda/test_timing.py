"""The timing of ways to compute a product. Only the GPU itself is replaced by a stand-in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import f32
from stages import capture

from tcdebug.compiler import seams
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.arithmetic.index import Symbol
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.runtime.cuda import load, timing
from tcdebug.compiler.runtime.cuda.launch import KernelTable, Loaded
from tcdebug.compiler.runtime.cuda.timing import ROUNDS, WARM_UP, Bench, Ways
from tcdebug.compiler.schedule.kernel import Schedule, Template
from tcdebug.compiler.schedule.products import product_fusion
from tcdebug.compiler.schedule.products.product_fusion import ProductFusion, products

pytest.importorskip("triton")

CLOCK = [0.0]
KERNEL = 1.0
"""Milliseconds of a kernel on the stand-in. A call of ATen takes none."""


@dataclass
class Launcher:
    """Accepts kernels with limited shared memory, and records the arguments of launches."""

    room: int = 30_000
    launched: list[tuple[Any, ...]] = field(default_factory=list)

    def load(self, cubin: bytes, name: str, shared: int, device: int) -> Loaded:
        assert cubin.startswith(b"\x7fELF")
        if shared > self.room:
            raise KernelError(f"{name} cannot be loaded: too much shared memory")
        return Loaded(1, 32, 0)

    def function(self, table: KernelTable) -> Callable[..., int]:
        def run(*given: Any) -> int:
            assert len(given) == 5 + table.pointers + table.sizes + table.numbers
            self.launched.append(given)
            CLOCK[0] += KERNEL
            return 0

        return run


class Event:
    """An event of the stand-in's clock."""

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = CLOCK[0]

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    made = Launcher()
    stream = type("Stream", (), {"cuda_stream": 7})()
    monkeypatch.setattr(product_fusion, "DEVICES", ("cpu",))
    monkeypatch.setattr(timing, "launcher_of", lambda *given: made)
    monkeypatch.setattr(timing, "CACHE_BYTES", 8)
    monkeypatch.setattr(load, "KernelTable", lambda **of: KernelTable(**of | {"device": 0}))
    monkeypatch.setattr(seams, "cuda_capability", lambda: 80)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    yield made


def ways_of(schedule: Schedule, *templates: Template) -> Ways:
    """The call and its epilogue, and the same with templates."""
    fusion = ProductFusion(schedule)
    (extern,) = products(schedule)
    fused = fusion.forms(extern)[-1]
    return {"extern": fused.replaces} | {
        t.label: [replace(fused.kernel, template=t)] for t in templates
    }


def scheduled(rows: int = 48, *, dynamic: bool = False) -> Schedule:
    with torch.no_grad():
        (schedule,) = capture(
            lambda x, w: (x @ w).relu(),
            f32(rows, 32),
            f32(32, 64),
            toggles=Toggles.parse(["memory.in_place"]),
            dynamic=dynamic,
        ).schedules
    return schedule


SMALL, LARGE = Template(16, 16, 16, 1, 2), Template(64, 128, 64, 4, 4)


def test_all_variants_run_equally_often_and_failures_are_reported(
    launcher: Launcher, tmp_path: Path
) -> None:
    schedule = scheduled()
    bench = Bench(schedule.graph.buffers(), {}, Options(cache_dir=tmp_path))
    found = bench.measured(ways_of(schedule, SMALL, LARGE))
    assert found.milliseconds == {"extern": KERNEL, SMALL.label: KERNEL}
    assert set(found.failed) == {LARGE.label}
    assert "too much shared memory" in found.failed[LARGE.label]
    assert len(launcher.launched) == 2 * (WARM_UP + ROUNDS)
    stream, wide, x, y, alone, *addresses = launcher.launched[-1]
    assert (stream, wide, x, y, alone) == (7, 0, 64, 48, 1)
    assert len(set(addresses)) == 3


def test_symbolic_sizes_have_the_values_of_the_capture_in_a_launch(
    launcher: Launcher, tmp_path: Path
) -> None:
    schedule = scheduled(dynamic=True)
    symbols = sorted({s.name for b in schedule.graph.buffers().values() for s in _symbols(b)})
    sizes = dict(zip(symbols, (48, 32, 64), strict=True))
    bench = Bench(schedule.graph.buffers(), sizes, Options(cache_dir=tmp_path))
    found = bench.measured(ways_of(schedule, SMALL))
    assert found.failed == {}
    given = launcher.launched[-1]
    assert sorted(given[2:5] + given[8:]) == sorted((1, *given[2:4], 48, 32, 64))


def _symbols(buffer: Buffer) -> set[Symbol]:
    return {s for index in buffer.size for s in index.symbols}


def test_nothing_is_measured_if_memory_is_short(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*size: Any, **how: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    schedule = scheduled()
    monkeypatch.setattr(torch, "zeros", short)
    bench = Bench(schedule.graph.buffers(), {}, Options(cache_dir=tmp_path))
    found = bench.measured(ways_of(schedule, SMALL))
    assert found.milliseconds == {}
    assert found.failed == {"extern": "out of memory", SMALL.label: "out of memory"}
