"""Shows the progress of a session on stderr, from its events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from tcdebug.display.live import Live
from tcdebug.display.text import first_line
from tcdebug.reading.run_dir import Record

RECENT = 8
"""Runs whose mean time gives the estimate."""


class ProgressDisplay(Live):
    """A live line on a terminal, otherwise one line for each important step."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        super().__init__(quiet=quiet, console=console)
        self.asked = 0
        self.phase = "starting"
        self.left = 0
        """Runs that the search expects to make; 0 where that is not known."""
        self.minimising = False
        """Whether `left` is what a round of reductions takes if none succeeds."""
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._started = time.monotonic()

    def feed(self, records: Iterable[Record]) -> None:
        """Show new events."""
        for record in records:
            line = self._line(record)
            if line and not self.quiet:
                self.console.print(line)
        if self._status is not None:
            seconds = int(time.monotonic() - self._started)
            self._status.update(
                f"{self.phase} [dim]({self.asked} runs, {seconds} s{self._estimate()})[/]"
            )

    def say(self, text: str) -> None:
        """Announce a step that has no event."""
        self.phase = text
        if not self.quiet:
            self.console.print(f"[dim]·[/] {text}")

    def _estimate(self) -> str:
        """Return how many runs are left, and how long they take at the recent speed."""
        if not self.left:
            return ""
        if self.minimising:  # most rounds end early, so a time would mislead
            return f": at most {self.left} runs left in this round"
        seconds = self.left * sum(self._seconds) / len(self._seconds) if self._seconds else 0.0
        time_left = f", about {seconds:.0f} s" if seconds >= 1.0 else ""
        return f": at most {self.left} runs left{time_left}"

    def _line(self, record: Record) -> str:
        """Return the line for an important event; other events only update the live line."""
        data = record.get("data", {})
        match record.get("event"):
            case "candidate":
                if not data["cached"]:
                    self.asked += 1
                    self.left = max(self.left - 1, 0)
                    self._seconds.append(data["seconds"])
                self.phase = f"{data['purpose']}: {data['outcome']}"
            case "failure":
                message = first_line(data["message"], 160)
                return f"[bad]failure:[/] {data['failure']} in {data['direction']}: {message}"
            case "hang.suspected":
                return f"[dim]·[/] {data['message']}: searching for the cause until it ends"
            case "bisect.plan":
                self.left, self.minimising = data["expected"], False
                return f"[dim]·[/] bisecting {data['size']} {data['over']}{self._estimate()}"
            case "bisect.step":
                self.left = max(data["high"] - data["low"] - 1, 0).bit_length()
                what = f"in {data['over']} {data['low']}..{data['high']}"
                return f"[dim]·[/] {what}{self._estimate()}"
            case "bisect.result":
                unit, subject = record.get("unit"), data["subject"]
                place = f" at {escape(subject)}" if subject != unit else ""
                return f"[dim]·[/] culprit [unit]{unit}[/]{place}"
            case "minify.plan":
                return self._plan(data)
            case "minify.step" if data["nodes_after"] < data["nodes_before"]:
                return (
                    f"[dim]·[/] {data['reduction']}: "
                    f"{data['nodes_before']} -> {data['nodes_after']} {data['unit']}"
                    f"{self._estimate()}"
                )
            case "repro.verify":
                verdict = "reproduces" if data["reproduced"] else "does not fail"
                self.phase = f"repro script {verdict}"
        return ""

    def _plan(self, data: Mapping[str, Any]) -> str:
        """Return the line when minimising begins; later reductions only change the estimate."""
        first, self.minimising = not self.minimising, True
        self.left = data["expected"]
        what = f"[dim]·[/] minimising {data['size']} {data['unit']}{self._estimate()}"
        return what if first else ""
