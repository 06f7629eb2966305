"""Writes a candidate of a search as a repro script: a case, and its toggles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.repros import repro
from tcdebug.minifier.targets import Target


@dataclass(frozen=True)
class Candidates:
    """Writes candidates for one target, as they are run at one place of a script."""

    target: Target
    ambient: Ambient
    setup: str = ""
    """Python at the start of the script; see `script_setup`."""

    def write(
        self,
        case: Case,
        toggles: Toggles,
        expected: Outcome,
        path: Path,
        *,
        standalone: bool = False,
    ) -> str:
        """Write the repro script of a candidate. Return what `repro.write` returns."""
        content = repro.Repro(
            expected,
            self.target.call(),
            ambient=self.ambient,
            setup=self.setup,
            off=tuple(toggles.texts()),
            added=self.target.added(),
            draws_as_eager=self.target.draws_as_eager,
            standalone=standalone,
        )
        return repro.write(case, content, path)
