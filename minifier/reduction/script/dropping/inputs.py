"""Replaces what compiled code is given by constant tensors, without what made the inputs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.compiled import (
    arguments_given,
    calls_one,
    names_that_run_it,
)
from tcdebug.minifier.reduction.script.dropping.statements import one_element
from tcdebug.minifier.reduction.script.dropping.unused import DropUnused
from tcdebug.minifier.reduction.script.observing import argument_key
from tcdebug.minifier.reduction.script.rewriting import (
    Rewrite,
    SyntaxReduction,
    expressions,
    rewritten,
)

VARIED = ".cumsum(0).cumsum(-1).sin()"
"""What gives the elements of a tensor of ones different values, in rows and columns."""


class ConstantInputs(SyntaxReduction):
    """Replaces tensors that compiled code is given by constant ones of the same shape.

    What only made the replaced tensors goes in the same candidate, such as a data loader, and a
    comprehension over it makes one element. `seen` has the shape of an argument under its key if it
    was the same in all calls of a run.
    """

    name = "constant_inputs"

    def __init__(self, seen: Mapping[str, str]) -> None:
        self._seen = seen

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return two edits for each tensor: different elements, and equal ones.

        A tensor is replaced in all calls of compiled code, and of what was compiled, at once. With
        both edits, its elements are equal.
        """
        given: dict[str, list[ast.expr]] = {}
        for argument in arguments_given(tree):
            given.setdefault(ast.unparse(argument), []).append(argument)
        found = []
        for text, arguments in given.items():
            ones = self._seen.get(argument_key(text))
            if ones is not None and ones != text:
                found += [] if "dtype" in ones else [_replaced(arguments, ones + VARIED)]
                found += [_replaced(arguments, ones)]
        return found

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script with these edits and without what only they made unused."""
        made = super().apply(script, edits)
        if made is None:
            return None
        made = _without_loops(made)
        unused = DropUnused()
        before = set(unused.edits(script))
        return unused.apply(made, [e for e in unused.edits(made) if e not in before])


def _without_loops(script: ScriptText) -> ScriptText:
    """Return a script whose comprehensions run compiled code once if its inputs are constant."""
    tree = ast.parse(script.text)
    names = names_that_run_it(tree)
    once = [
        edit
        for node in expressions(tree)
        if isinstance(node, ast.ListComp | ast.GeneratorExp)
        and calls_one(ast.walk(node.elt), names)
        for edit in one_element(node)
    ]
    text = rewritten(tree, once) if once else None
    return script if text is None else script.with_text(text)


def _replaced(nodes: Sequence[ast.expr], text: str) -> Rewrite:
    return Rewrite(tuple((node, (ast.parse(text, mode="eval").body,)) for node in nodes))
