"""Removes what no later effect of a script needs: many statements in one candidate."""

from __future__ import annotations

import ast
from collections import defaultdict

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.compiled import calls_one, names_of_compiled
from tcdebug.minifier.reduction.script.dropping.slicing import Slices, bound_names
from tcdebug.minifier.reduction.script.dropping.statements import KeepNeeded
from tcdebug.minifier.reduction.script.rewriting import FUNCTIONS, own_parts

ENDINGS = frozenset({"exit", "_exit", "abort", "quit"})
"""Functions that end a program."""
IMPORTS = (ast.Import, ast.ImportFrom)


class DropUnused(KeepNeeded):
    """Removes statements whose results nothing uses: output, logging, values that nothing reads.

    A call such as `log.info(x)` is needed if something else needs `log`. What calls a function of
    the script or of torch, or compiled code, what raises, and what a function of the script
    decorates is needed. All edits together come first.
    """

    name = "drop_unused"

    def edits(self, script: ScriptText) -> list[str]:
        """Return the numbers of the statements that nothing needs."""
        slices = Slices(ast.parse(script.text))
        used = _Used(slices).found
        return [str(n) for n, s in enumerate(slices.order) if s not in used]


class _Used:
    """The statements of a script that have an effect, and all that they need."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._compiled = names_of_compiled(slices.tree)
        imports = (s for s in slices.order if isinstance(s, IMPORTS))
        self._imported = {name for s in imports for name in bound_names(s)}
        self._inside: dict[ast.stmt | None, list[ast.stmt]] = defaultdict(list)
        """Statements with an effect, by the function that runs them."""
        self._of: dict[ast.stmt, list[ast.stmt]] = defaultdict(list)
        """Statements that only change what a statement has bound, and those that leave a loop."""
        for statement in slices.order:
            self._sort(statement)
        self.found = slices.closure(self._inside[None], lambda s: [*self._of[s], *self._inside[s]])

    def _sort(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Break | ast.Continue):
            self._of[self._slices.loop_around(statement)].append(statement)
            return
        if self._runs_compiled(statement) or self._is_registered(statement):
            self._inside[self._slices.runs_in(statement)].append(statement)
            return
        root = _changed(statement)
        if root is None:
            if _has_effect(statement) or self._changes_import(statement):
                self._inside[self._slices.runs_in(statement)].append(statement)
            return
        if _is_output(statement):
            return
        binders = self._slices.binders(root, statement)
        if self._is_strong(statement, root, binders):
            self._inside[self._slices.runs_in(statement)].append(statement)
        for binder in binders:
            self._of[binder].append(statement)

    def _runs_compiled(self, statement: ast.stmt) -> bool:
        """Return whether a statement runs compiled code, whose capture may have side effects."""
        return calls_one(own_parts(statement), self._compiled)

    def _is_registered(self, statement: ast.stmt) -> bool:
        """Return whether a function of the script decorates a statement, and may remember it."""
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return False
        roots = filter(None, map(_root, statement.decorator_list))
        binders = (b for root in roots for b in self._slices.binders(root, statement))
        return any(isinstance(b, FUNCTIONS) for b in binders)

    def _changes_import(self, statement: ast.stmt) -> bool:
        """Return whether a statement stores an attribute of what the script imports: a patch."""
        stored = (n for n in own_parts(statement) if isinstance(n, ast.Attribute))
        return any(not isinstance(n.ctx, ast.Load) and _root(n) in self._imported for n in stored)

    def _is_strong(self, statement: ast.stmt, root: str, binders: list[ast.stmt]) -> bool:
        """Return whether what a statement calls may have an effect on something else."""
        called = _called(statement)
        if called in ENDINGS or called.lower().startswith("assert"):
            return True
        if not binders:  # a parameter, or a builtin
            return True
        if any(isinstance(b, (*FUNCTIONS, ast.ClassDef)) for b in binders):
            return True
        return any(isinstance(b, IMPORTS) and _is_of_torch(b) for b in binders)


def _is_of_torch(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").partition(".")[0] == "torch"
    assert isinstance(statement, ast.Import)
    return any(a.name.partition(".")[0] == "torch" for a in statement.names)


def _has_effect(statement: ast.stmt) -> bool:
    """Return whether a statement that changes no object is needed for itself.

    The fields of a class are, because their order may matter.
    """
    return isinstance(statement, ast.Raise | ast.Assert | ast.Delete | ast.AnnAssign) or (
        isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
    )


def _changed(statement: ast.stmt) -> str | None:
    """Return the name of the object that a call or a store with an index may change."""
    match statement:
        case ast.Expr(value=ast.Call(func=called)):
            return _root(called)
        case (
            ast.Assign(targets=[ast.Subscript() as target])
            | ast.AugAssign(target=ast.Subscript() as target)
        ):
            return _root(target)
    return None


def _called(statement: ast.stmt) -> str:
    """Return the last part of the name of what a statement calls."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
            return name
    return ""


def _is_output(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return True
    return False


def _root(node: ast.expr) -> str | None:
    """Return the name that an expression such as `a.b[0].c()` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
