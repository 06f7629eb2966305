"""Failure criteria: the user's choice, which a job carries to its processes."""

from __future__ import annotations

import re

import msgspec

from tcdebug.minifier.cases.outcome import Kind, Outcome

VALIDATION = "validation"
ORACLES = (
    *("default", "crash", "eager", "fp64", "layout", "nan", "perf", "compile-time"),
    VALIDATION,
)
"""The values of `--oracle`. docs/oracles.md describes each."""

SLOWER_THAN = 1.2
"""perf: a graph is slow if it takes this many times as long as eager."""
LONGER_THAN = 10.0
"""compile-time: a compile is slow if it takes this many CPU-seconds."""

OVERHEAD = 1e-4
"""perf: seconds of overhead in any call of a compiled program: guards, and a Python wrapper."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""The environment of a program that runs in one thread."""

COUNTED = {
    "crash": (Kind.EXCEPTION, Kind.CRASH, Kind.HANG, Kind.KILLED),
    "nan": (Kind.WRONG,),
    "perf": (Kind.SLOW, Kind.RECOMPILE),
    "compile-time": (Kind.SLOW,),
    VALIDATION: (Kind.WRONG,),
}
"""The kinds of failure that an oracle looks for. An oracle that is not listed looks for all."""


class PrintedLine(msgspec.Struct, frozen=True):
    """A line that a script prints in eager. A run that prints it less often is wrong."""

    text: str
    times: int = 1


class Criteria(msgspec.Struct, frozen=True):
    """How a candidate is judged, and which failures count."""

    oracle: str = "default"
    slower_than: float = SLOWER_THAN
    fail_regex: str = ""
    check: str = ""
    """A command that judges instead. Its exit statuses are those of `git bisect run`."""
    longer_than: float = LONGER_THAN
    one_thread: bool = False
    """perf: whether both programs run in one thread, whose time other processes do not change."""
    overhead: float = OVERHEAD
    """perf: the seconds by which a program may be slower than the limit."""
    prints: PrintedLine | None = None
    """What a script must print, besides ending well."""

    @property
    def graphs_only(self) -> bool:
        """Whether only graphs can fail this way, so that a script's exit says nothing about it."""
        graphs = ("nan", "perf", "compile-time", VALIDATION)
        return not self.check and self.oracle in graphs

    @property
    def judges_draws(self) -> bool:
        """Whether a failure may be seen where random numbers differ from those of eager."""
        return not self.check and self.oracle in ("default", "crash", "eager", "fp64", "layout")

    def counts(self, outcome: Outcome) -> bool:
        """Return whether a failure meets the criteria."""
        if not self.check and outcome.kind not in COUNTED.get(self.oracle, tuple(Kind)):
            return False
        text = f"{outcome.kind.value} {outcome.signature} {outcome.message}"
        return re.search(self.fail_regex, text) is not None
