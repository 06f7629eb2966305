"""What counts as a failure: the user's choice, as a job carries it."""

from __future__ import annotations

import re

import msgspec

from tcdebug.minifier.cases.outcome import Kind, Outcome

ORACLES = ("default", "crash", "eager", "fp64", "layout", "nan", "perf", "compile-time")
"""What `--oracle` takes; docs/oracles.md says what each looks at."""

SLOWER_THAN = 1.2
"""For perf: how many times the seconds of eager are slow."""
LONGER_THAN = 10.0
"""For compile-time: CPU-seconds that are too many."""

COUNTED = {
    "crash": (Kind.EXCEPTION, Kind.CRASH, Kind.HANG, Kind.KILLED),
    "nan": (Kind.WRONG,),
    "perf": (Kind.SLOW, Kind.RECOMPILE),
    "compile-time": (Kind.SLOW,),
}
"""The kinds that an oracle looks for; those that are not here look for all."""


class Wanted(msgspec.Struct, frozen=True):
    """How a candidate is judged, and which of its failures count."""

    oracle: str = "default"
    slower_than: float = SLOWER_THAN
    fail_regex: str = ""
    check: str = ""
    """A command that judges instead, its exit status as `git bisect run` has it."""
    longer_than: float = LONGER_THAN

    @property
    def of_graphs(self) -> bool:
        """Whether only graphs can fail so: how a script ends says nothing about it."""
        return not self.check and self.oracle in ("nan", "perf", "compile-time")

    def counts(self, outcome: Outcome) -> bool:
        """Whether a failure is one that is looked for."""
        if not self.check and outcome.kind not in COUNTED.get(self.oracle, tuple(Kind)):
            return False
        text = f"{outcome.kind.value} {outcome.signature} {outcome.message}"
        return re.search(self.fail_regex, text) is not None
