"""Failures met while another was hunted: each becomes a case of its own, so none is lost.

A candidate may fail in another way than what is searched for. That is no answer to the search,
and often a bug all the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import OtherFailure
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.repros.candidate import Candidates

MOST = 16
"""More failures than this are not kept: one fault may have many faces."""


@dataclass
class OtherFailures:
    """The smallest case of each signature, as `<folder>/<n>/repro.py`. None was run by itself."""

    folder: Path
    log: EventLog
    scripts: dict[str, Path] = field(default_factory=dict)
    """Repro script by signature."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def keep(
        self, candidates: Candidates, case: Case, toggles: Toggles, outcome: Outcome
    ) -> None:
        """Write a case down, unless one of this signature is there that is no larger."""
        signature = outcome.signature
        if signature in self._sizes:
            if case.size >= self._sizes[signature]:
                return
            number = list(self._sizes).index(signature)
        elif len(self._sizes) < MOST:
            number = len(self._sizes)
        else:
            return
        path = self.folder / str(number) / "repro.py"
        with contextlib.suppress(Exception):  # what has no text is lost, and the search goes on
            candidates.write(case, toggles, outcome, path)
            self.scripts[signature], self._sizes[signature] = path, case.size
            self.log.emit(OtherFailure(outcome.kind.value, signature, case.size, str(path)))
