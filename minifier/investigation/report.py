"""The findings of an investigation as data, for `--json` and the final screen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.cases.layer_names import is_layer

STATUS_EXIT = {
    "confirmed": 0,
    "minimized": 0,
    "unconfirmed": 1,
    "no_failure": 4,
    "fails_in_eager": 5,
    "budget": 6,
    "unjudged": 7,
    "interrupted": 130,
}
"""Exit status by report status. Usage errors are 2, and internal errors 3."""
SUSPECTED = "suspected, but not confirmed: "
"""Begins a note on units that are not confirmed."""
ANY_KERNEL = (
    "each lowering by itself makes it fail, and it passes only without all of them: any kernel may "
    "be at fault"
)
"""A note on a script that each of its lowerings makes fail."""


class ReportedFailure(msgspec.Struct, frozen=True):
    """What failed: the kind, and the signature by which two failures are the same."""

    kind: str
    signature: str
    direction: str = "forward"
    message: str = ""


class Culprit(msgspec.Struct, frozen=True):
    """A decision without which the failure disappears."""

    unit: str
    subject: str
    site: str
    ordinal: int

    @property
    def named(self) -> str:
        """The unit, and where it decides. A layer of a whole script is nowhere in particular."""
        return self.unit if self.subject == self.unit else f"{self.unit} at {self.subject}"


def culprits(decisions: Sequence[Decision]) -> list[Culprit]:
    """Convert decisions to their form in a report."""
    return [Culprit(d.unit, d.subject, d.site, d.ordinal) for d in decisions]


class StageDiff(msgspec.Struct, frozen=True):
    """Where a fault appears, by the texts of the stages of two compiles, with it and without it.

    `stage` is the first stage that differs. It is empty if no text shows the fault. `last_equal` is
    the stage before it. `ended_before` is the first stage that the failing compile did not write
    because it ended, or empty if it wrote all. `path` is the diff from passing to failing, and
    `lines` are its first lines.
    """

    stage: str
    last_equal: str
    ended_before: str = ""
    path: str | None = None
    lines: list[str] = []


class ReportedFault(msgspec.Struct, frozen=True):
    """One independent fault, and its own small repro.

    `culprits` are decisions of one unit; there are several if it acts in several places.
    `alternatives` are units that cause the same failure in the same graph: it passes only with all
    of them off too. `partners` are units that must also be on, although the decision is taken
    without them: it passes without any one of them. Each group in `either` is one partner with
    several substitutes: it passes only with the whole group off. Without any of `requires`, the
    decision is not taken, or the graph fails in a different way.

    `within` is the unit of a layer at fault that decides where all other units are off, except
    those that the failure needs. With the others on, it fails in a different way without this unit.

    `misregistered` lists errors in the registration of the user's custom operators that remain in
    the repro. If it is not empty, there are no culprits.

    `short` is the repro in plain torch without a judge, if that was seen to fail in the same way.
    `fails` and `passes` are command lines that show both, to be run in the folder of the repro.
    `only_fails` shows the failure with only the units on that it needs. `lines` are the user's
    source lines that remain in the repro, or the one that Dynamo captures wrongly. `stages` says
    where in the pipeline the fault appears; None if a whole layer is at fault.
    """

    failure: ReportedFailure
    culprits: list[Culprit] = []
    misregistered: list[str] = []
    alternatives: list[str] = []
    partners: list[str] = []
    either: list[list[str]] = []
    requires: list[str] = []
    within: list[str] = []
    confirmed: bool = False
    repro: str | None = None
    short: str | None = None
    nodes: int = 0
    fails: str = ""
    only_fails: str = ""
    passes: str = ""
    lines: list[str] = []
    stages: StageDiff | None = None


class ReportedRung(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend of torch that does less than the failing one, and how the case ended with it.

    For a script that fails as a whole, it is a run without some layers, which `off` names. If that
    was not a run with another backend, `backend` says how it ran.
    """

    backend: str
    outcome: str
    off: list[str] = []

    @property
    def how(self) -> str:
        """How the case or the script ran, in words."""
        return self.backend if " " in self.backend else f"with the backend {self.backend}"


class ReportedScript(msgspec.Struct, frozen=True):
    """The minimised version of a script that fails as a whole. Blank lines are not counted."""

    path: str
    lines_before: int
    lines_after: int
    runs: int
    seconds: float
    cpu_seconds: float


def culprit_units(report: Report) -> list[str]:
    """Return the units and layers that have to be off for every fault of a report to disappear."""
    named = (
        unit
        for fault in report.faults
        for unit in [*(culprit.unit for culprit in fault.culprits), *fault.alternatives]
    )
    return list(dict.fromkeys(named))


DRAWS_OTHERS = (
    "inductor draws other random numbers than eager from the same seed; if the script compares "
    "these, that is no fault: with torch._inductor.config.fallback_random = True, it draws the same"
)
"""A note on a script that compares random numbers of inductor with those of eager."""


def raises_instead(units: list[str]) -> str:
    """Return the beginning of a note that only what takes the place of units raises."""
    off = ", ".join(units)
    return f"with {off} off, the call of the operator in its place raises, which is no second fault"


def suspected(units: Sequence[str]) -> list[str]:
    """Return a note on units that are not confirmed, if there are any."""
    return [f"{SUSPECTED}{', '.join(units)}"] if units else []


def suspected_together(units: Sequence[str]) -> list[str]:
    """Return notes on lowerings each of which makes a script fail, if there are any."""
    return [ANY_KERNEL, *suspected(units)] if units else []


def suspicion(report: Report) -> list[str]:
    """Return a note on the units that a report names without confirming them, if there are any."""
    return suspected([name for name in culprit_units(report) if not is_layer(name)])


def suspected_units(report: Report) -> list[str]:
    """Return the units that decide within a layer, or that a note says are not confirmed."""
    names = [n.removeprefix(SUSPECTED) for n in report.notes if n.startswith(SUSPECTED)]
    within = [unit for fault in report.faults for unit in fault.within]
    return [*within, *(unit for name in names for unit in name.split(", "))]


class Report(msgspec.Struct, frozen=True):
    """The result of bisect or minify.

    `graph` is the ordinal of the graph among those that the script compiles, from 0; None if the
    failure belongs to the script as a whole. `culprits` has one decision of each fault. `repro` and
    `nodes_after` belong to the first fault. `layer` is the layer of torch at fault if nothing more
    specific is known, as `ladder` shows. `confidence` is the confidence that no pass was luck.
    `others` maps the signatures of other failures that were found to their repro scripts. `script`
    is the small version of a script that fails as a whole.
    """

    status: str
    failure: ReportedFailure | None = None
    graph: int | None = None
    culprits: list[Culprit] = []
    faults: list[ReportedFault] = []
    layer: str = ""
    ladder: list[ReportedRung] = []
    confirmed: bool = False
    confidence: float = 1.0
    others: dict[str, str] = {}
    repro: str | None = None
    script: ReportedScript | None = None
    nodes_before: int = 0
    nodes_after: int = 0
    reruns: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    run_dir: str = ""
    notes: list[str] = []

    @property
    def exit_status(self) -> int:
        """The exit status of a command that ends with this report."""
        return STATUS_EXIT[self.status]
