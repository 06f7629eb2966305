"""Failures that a search finds besides its own. Each is kept as a repro.

A candidate may fail in a different way from the failure that is searched for. That does not answer
the search, but it is often another bug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import OtherFailure
from tcdebug.minifier.cases.outcome import Outcome

MOST = 16
"""The limit on kept failures, because one fault may cause many failures."""


@dataclass
class OtherFailures:
    """The smallest candidate of each signature, as `<folder>/<n>/repro.py`. None is verified."""

    folder: Path
    log: EventLog
    scripts: dict[str, Path] = field(default_factory=dict)
    """Repro scripts by signature."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def keep(self, outcome: Outcome, size: int, write: Callable[[Path], None]) -> None:
        """Write a candidate of `size` nodes unless its signature has a repro that is no larger."""
        signature = outcome.signature
        if signature in self._sizes:
            if size >= self._sizes[signature]:
                return
            number = list(self._sizes).index(signature)
        elif len(self._sizes) < MOST:
            number = len(self._sizes)
        else:
            return
        path = self.folder / str(number) / "repro.py"
        try:
            write(path)
        except Exception as problem:  # the search continues without this repro
            self.log.emit(Fallback(f"no repro of another failure: {signature}", str(problem)))
            return
        self.scripts[signature], self._sizes[signature] = path, size
        self.log.emit(OtherFailure(outcome.kind.value, signature, size, str(path)))
