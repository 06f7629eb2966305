"""Shows a campaign: a live line, then the statistics and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.live import Live
from tcdebug.display.text import first_line
from tcdebug.fuzz.findings import PROGRAM, Finding
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.output.structures import CampaignSummary


class FuzzProgress(Live):
    """Progress on stderr: a live line on a terminal, otherwise one line per finding."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._shown = 0

    def say(self, text: str) -> None:
        """Announce a step."""
        if not self.quiet:
            self.console.print(f"[dim]·[/] {escape(text)}")

    def show(self, tally: CampaignTally) -> None:
        """Show the statistics so far, and the findings that are new since the last call."""
        for found in tally.findings[self._shown :]:
            if not self.quiet:
                ops = " ".join(found["ops"])
                self.console.print(f"[bad]finding[/] {escape(found['signature'])}: {escape(ops)}")
        self._shown = len(tally.findings)
        if self._status is not None:
            numbers = tally.summary
            self._status.update(
                f"{numbers.examples} programs, {numbers.pairs} pairs, "
                f"{numbers.findings} findings [dim]({numbers.seconds:.0f} s)[/]"
            )


def show_tally(numbers: CampaignSummary) -> None:
    """Print the statistics of a campaign."""
    console = results()
    for name, number in msgspec.structs.asdict(numbers).items():
        console.print(f"{name.replace('_', ' '):<20} {number}")


def show_findings(findings: Sequence[Finding], folder: Path) -> None:
    """Print new findings, each with its message, culprit and the command that shows it."""
    console = results()
    for finding in findings:
        path = folder / finding.slug / (finding.repro or PROGRAM)
        console.print(f"\n[bad]{finding.kind}[/] {escape(finding.signature)}")
        console.print(f"  message  {first_line(finding.message, 200)}")
        console.print(f"  ops      {' '.join(finding.ops)}")
        if finding.culprits:
            console.print(f"  culprit  [unit]{' '.join(finding.culprits)}[/]")
        console.print(f"  run      python [path]{escape(str(path))}[/]")
