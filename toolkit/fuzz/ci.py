"""The modes of `tcdebug fuzz ci`, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tcdebug.fuzz.findings import PROGRAM, Finding
from tcdebug.output.formats import FORMATS, Heading, Result
from tcdebug.output.structures import CampaignSummary


@dataclass(frozen=True)
class CampaignMode:
    """The duration of a mode, and whether it continues from earlier campaigns."""

    seconds: float
    seed: int | None
    """None for a new seed each time."""
    database: bool
    bisect: bool


MODES = {
    "code-change": CampaignMode(120.0, 0, database=False, bisect=False),
    "batch": CampaignMode(3600.0, None, database=True, bisect=True),
}


def written(style: str, findings: Sequence[Finding], numbers: CampaignSummary, folder: Path) -> str:
    """Return the findings of a campaign, in a format of `formats.FORMATS`."""
    what = f"{numbers.examples} programs, {numbers.valid:.1%} valid, {len(findings)} new findings"
    heading = Heading("tcdebug fuzz", what, str(folder), msgspec.structs.asdict(numbers))
    return FORMATS[style]([_result(f, folder) for f in findings], heading)


def _result(finding: Finding, folder: Path) -> Result:
    path = str(folder / finding.slug / (finding.repro or PROGRAM))
    return Result(
        rule=finding.slug,
        kind=finding.kind,
        title=f"{finding.signature} ({' '.join(finding.ops)})",
        message=finding.message or finding.signature,
        path=path,
        command=f"python {path}",
        identity=finding.identity,
        details=(("culprit", ", ".join(finding.culprits)),),
    )
