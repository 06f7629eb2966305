"""What an investigation found, as data: what `--json` prints and the last screen shows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tcdebug.compiler.gate import Decision

STATUS_EXIT = {
    "confirmed": 0,
    "minimized": 0,
    "unconfirmed": 1,
    "no_failure": 4,
    "fails_in_eager": 5,
    "budget": 6,
    "interrupted": 130,
}
"""Exit status by report status. Usage errors are 2, internal errors 3."""


class Failure(msgspec.Struct, frozen=True):
    """What failed: the kind, and the signature that makes two failures the same."""

    kind: str
    signature: str
    direction: str = "forward"
    message: str = ""


class Culprit(msgspec.Struct, frozen=True):
    """A decision without which the failure goes away."""

    unit: str
    subject: str
    site: str
    ordinal: int


def culprits(decisions: Sequence[Decision]) -> list[Culprit]:
    """Decisions as a report has them."""
    return [Culprit(d.unit, d.subject, d.site, d.ordinal) for d in decisions]


class Report(msgspec.Struct, frozen=True):
    """The result of bisect or minify.

    `graph` is the graph's place among those that the script compiles, from 0; None when the
    failure belongs to the script as a whole.
    """

    status: str
    failure: Failure | None = None
    graph: int | None = None
    culprits: list[Culprit] = []
    confirmed: bool = False
    repro: str | None = None
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
