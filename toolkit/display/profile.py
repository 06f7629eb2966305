"""Shows what the lines and kernels of a script cost."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.tables import show_table
from tcdebug.display.text import clipped, counted, short_path
from tcdebug.profiling.profile import KernelCost, LineCost, Profile

MOST = 12
"""The maximum number of rows of a table; `--json` has all."""
NAME = 48
"""The maximum length of a kernel's name in a table."""
SHARED = "a kernel of several lines counts in full for each; alone: kernels of one line only"
"""Explains shares that add up to more than 100 %."""


def show_profile(found: Profile) -> None:
    """Print what was measured, and tables of lines, kernels and graphs."""
    out = results()
    out.print(_headline(found))
    out.print(f"[dim]{_limits(found)}[/]")
    if any(cost.alone < cost.seconds for cost in found.lines):
        out.print(f"[dim]{SHARED}[/]")
    for text in found.notes:
        out.print(f"[warn]note[/]  {escape(text)}")
    _part("line", LINE_COLUMNS, map(_line_row, found.lines))
    _part("kernel", KERNEL_COLUMNS, map(_kernel_row, found.kernels))
    if any(cost.registers is not None for cost in found.kernels):
        used = [cost for cost in found.kernels if cost.registers is not None]
        _part("GPU kernel", RESOURCE_COLUMNS, map(_resource_row, used))
    graphs = (
        [g.graph, f"{g.calls}", _time(g.seconds / g.calls), _time(g.kernel_seconds / g.calls)]
        for g in found.graphs
    )
    _part("graph", ["graph", "calls", "host time", "kernels"], graphs)
    out.print(
        f"[dim]trace[/]  {escape(short_path(found.trace))}  [dim]for https://ui.perfetto.dev[/]"
    )


def _headline(found: Profile) -> str:
    each = f" of {_time(found.step_seconds)}" if found.step_seconds is not None else ""
    warm_up = f" after {counted(found.warm_up, 'step')} of warm-up" if found.warm_up else ""
    return f"measured {counted(found.steps, 'step')}{each}{warm_up}; compiles are left out"


def _limits(found: Profile) -> str:
    speeds = [f"{device} copies at {_speed(s)}" for device, s in found.copy_speeds.items()]
    return f"{', '.join(speeds)}; profiling adds about {_time(found.overhead_seconds)} to a step"


LINE_COLUMNS = ["total", "share", "alone", "nodes", "device", "line", "source"]


def _line_row(cost: LineCost) -> list[str]:
    return [
        _time(cost.seconds), f"{cost.share:.0%}", _time(cost.alone), f"{cost.nodes}", cost.device,
        _short_line(cost.line), clipped(cost.source, 60),
    ]  # fmt: skip


KERNEL_COLUMNS = [
    "total", "share", "calls", "mean", "moves", "speed", "of copy", "device", "kernel", "graph",
    "lines",
]  # fmt: skip


def _kernel_row(cost: KernelCost) -> list[str]:
    moved = "" if cost.moved is None else _bytes(cost.moved)
    speed = "" if cost.bandwidth is None else _speed(cost.bandwidth)
    of_copy = "" if cost.of_copy is None else f"{cost.of_copy:.0%}"
    where = cost.graph or cost.where or "eager"
    return [
        _time(cost.seconds), f"{cost.share:.0%}", f"{cost.calls}", _time(cost.mean_seconds),
        moved, speed, of_copy, cost.device, _short_name(cost.name), where,
        " ".join(map(_short_line, cost.lines)),
    ]  # fmt: skip


RESOURCE_COLUMNS = ["registers", "spilled", "shared", "occupancy", "kernel"]


def _resource_row(cost: KernelCost) -> list[str]:
    def text(number: int | None) -> str:
        return "" if number is None else str(number)

    occupancy = "" if cost.occupancy is None else f"{cost.occupancy:.0%}"
    name = cost.name if not cost.device_kernels else cost.device_kernels[0]
    return [text(cost.registers), text(cost.spilled), text(cost.shared), occupancy, name]


def _part(title: str, columns: list[str], rows: Iterable[list[str]]) -> None:
    found = list(rows)
    if not found:
        return
    out = results()
    out.print()
    show_table(columns, found[:MOST])
    if len(found) > MOST:
        out.print(f"[dim]and {counted(len(found) - MOST, title)} more, see --json[/]")


def _short_line(line: str) -> str:
    file, _, number = line.rpartition(":")
    return f"{short_path(file)}:{number}"


def _short_name(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"


def _speed(number: float) -> str:
    return f"{number / 1e9:.3g} GB/s"
