"""Removes what a script that raises does not reach."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.slicing import Slices
from tcdebug.minifier.reduction.script.dropping.statements import KeepNeeded
from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS


@dataclass(frozen=True)
class DropUnreached(KeepNeeded):
    """Removes the statements behind those at which a script raised, many in one candidate.

    `lines` are the lines of the stack, in the script with this `key`. In eager, the script reaches
    these statements. So what returns a value stays, with what that needs.
    """

    key: str
    lines: frozenset[int]
    name: str = "drop_unreached"

    def edits(self, script: ScriptText) -> list[str]:
        """Return the numbers of the statements; none for another script."""
        if script.key != self.key:
            return []
        tree = ast.parse(script.text)
        unreached = {
            inner
            for node in ast.walk(tree)
            for _, block in ast.iter_fields(node)
            if isinstance(block, list)
            for place, statement in enumerate(block)
            if self._raised_in(statement)
            for later in block[place + 1 :]
            if not _returns(later)
            for inner in ast.walk(later)
        }
        return [str(n) for n, s in enumerate(Slices(tree).order) if s in unreached]

    def _raised_in(self, node: ast.AST) -> bool:
        """Return whether the stack ends or goes on in a statement, not in a function it defines."""
        if not isinstance(node, ast.stmt) or isinstance(node, DEFINITIONS):
            return False
        last = node.end_lineno or node.lineno
        return any(node.lineno <= line <= last for line in self.lines)


def _returns(statement: ast.stmt) -> bool:
    """Return whether a statement may return from the function around it."""
    if isinstance(statement, DEFINITIONS):
        return False
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))
