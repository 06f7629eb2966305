"""Removes a script's arguments, and its need of the original folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcdebug.minifier.cases.script_text import ScriptText


class DropProgramArguments:
    """Removes arguments of the command line."""

    name = "drop_program_arguments"
    ordered = False

    def edits(self, script: ScriptText) -> list[str]:
        """Return the places of the arguments."""
        return [str(place) for place in range(len(script.args))]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script without these arguments."""
        kept = (a for place, a in enumerate(script.args) if str(place) not in edits)
        return replace(script, args=tuple(kept))


class StandAlone:
    """Runs the script in an empty folder."""

    name = "stand_alone"
    ordered = False

    def edits(self, script: ScriptText) -> list[str]:
        """Return the only edit, unless it is done already."""
        return [] if script.alone else ["alone"]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script without the folder of the original."""
        return replace(script, alone=True)
