"""Removes statements, and the blocks around statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.likely import likely_last
from tcdebug.minifier.reduction.script.dropping.slicing import Slices
from tcdebug.minifier.reduction.script.rewriting import (
    Rewrite,
    SyntaxReduction,
    expressions,
    last_name,
    rewritten,
    statements,
)


class KeepNeeded:
    """Removes statements, except those that the remaining ones need.

    Every candidate therefore defines the names that it reads, and most unneeded statements are
    found without a run.
    """

    name = "keep_needed"
    ordered = False

    def edits(self, script: ScriptText) -> list[str]:
        """Return the numbers of all statements, in the order of the text."""
        return [str(n) for n in range(len(Slices(ast.parse(script.text)).order))]

    def descriptions(self, script: ScriptText) -> list[str]:
        """Return the texts of the statements that the edits remove."""
        order = Slices(ast.parse(script.text)).order
        return [ast.unparse(order[int(number)]) for number in self.edits(script)]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script without these statements, as far as others do not need them."""
        return self._applied(script, edits, first=False)

    def _applied(
        self, script: ScriptText, edits: Sequence[str], *, first: bool
    ) -> ScriptText | None:
        tree = ast.parse(script.text)
        slices = Slices(tree)
        dropped = {slices.order[int(number)] for number in edits}
        spare = dropped if first else ()
        kept = slices.needed_by((s for s in slices.order if s not in dropped), spare)
        text = rewritten(tree, [Rewrite.of(s) for s in slices.order if s not in kept])
        return None if text is None else script.with_text(text)


class KeepFirst(KeepNeeded):
    """Removes statements, except those that the remaining ones need to have each name bound once.

    Of `x = f(x)` and `x = g(x)`, the second goes with all that only `g` needs. Statements with one
    of the texts `likely` are tried last.
    """

    name = "keep_first"

    def __init__(self, likely: frozenset[str]) -> None:
        self._likely = likely

    def edits(self, script: ScriptText) -> list[str]:
        """Return the numbers of all statements, those that are likely needed last."""
        tree = ast.parse(script.text)
        return [str(n) for n in likely_last(Slices(tree).order, tree, self._likely)]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script without these statements, as far as others do not need them."""
        return self._applied(script, edits, first=True)


class DropStatements(SyntaxReduction):
    """Removes statements, with everything inside them."""

    name = "drop_statements"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each statement."""
        return [Rewrite.of(s) for s in statements(tree) if not isinstance(s, ast.Pass)]


class UnwrapBlocks(SyntaxReduction):
    """Replaces a compound statement by a block of it, and a loop by its first iteration.

    With `loops`, only loops are replaced: what is left runs faster. Comprehensions are loops, too.
    """

    def __init__(self, *, loops: bool = False) -> None:
        self._loops = loops
        self.name = f"unwrap_{'loops' if loops else 'blocks'}"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return the blocks of each compound statement as edits."""
        found = []
        for node in statements(tree):
            if isinstance(node, ast.For):
                first = ast.parse("_ = next(iter(_))").body[0]
                assert isinstance(first, ast.Assign) and isinstance(first.value, ast.Call)
                iterator = first.value.args[0]
                assert isinstance(iterator, ast.Call)
                first.targets, iterator.args = [node.target], [node.iter]
                found.append(Rewrite.of(node, first, *node.body))
                found.append(Rewrite.of(node, *node.body))
            elif not self._loops and isinstance(node, ast.If | ast.While | ast.With | ast.Try):
                found.append(Rewrite.of(node, *node.body))
                if isinstance(node, ast.If) and node.orelse:
                    found.append(Rewrite.of(node, *node.orelse))
        if self._loops:
            found += [edit for node in expressions(tree) for edit in one_element(node)]
        return found


def one_element(node: ast.expr) -> Iterator[Rewrite]:
    """Yield the edit that lets a comprehension make one element."""
    match node:
        case (
            ast.ListComp(elt=element, generators=[loop])
            | ast.GeneratorExp(elt=element, generators=[loop])
        ) if not loop.ifs:
            targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            if not any(isinstance(n, ast.Name) and n.id in targets for n in ast.walk(element)):
                yield Rewrite.of(node, ast.List([element], ast.Load()))
            elif isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "range":
                once = ast.Call(loop.iter.func, [ast.Constant(1)], [])
                yield Rewrite.of(loop.iter, once)
