"""The statements of a script that its failure most likely needs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from pathlib import Path

from tcdebug.minifier.reduction.script.dropping.compiled import calls_one, names_of_compiled
from tcdebug.minifier.reduction.script.rewriting import FUNCTIONS, last_name, own_parts, statements

DEEPEST = 3
"""A statement likely needs what the functions that it calls do, and those called by these."""


def texts_at(tree: ast.Module, lines: Collection[int]) -> frozenset[str]:
    """Return the texts of the innermost statements at these lines, and of what these call."""
    found: list[ast.stmt] = []
    for line in lines:
        around = [s for s in statements(tree) if s.lineno <= line <= (s.end_lineno or s.lineno)]
        found += sorted(around, key=lambda s: (s.end_lineno or s.lineno) - s.lineno)[:1]
    return frozenset(map(ast.unparse, _with_called(tree, found)))


def texts_of(places: Iterable[str], script: str) -> frozenset[str]:
    """Return the same for the places in a script, such as `train.py:12: source`."""
    parts, path = (place.split(":", 2) for place in places), Path(script)
    lines = [int(n) for file, n, *_ in parts if Path(file).name == path.name and n.isdigit()]
    return texts_at(ast.parse(path.read_bytes()), lines)


def likely_last(order: list[ast.stmt], tree: ast.Module, texts: frozenset[str]) -> list[int]:
    """Return the numbers of statements, those that are likely needed last.

    They have one of these texts, or call compiled code.
    """
    names = names_of_compiled(tree)

    def is_likely(statement: ast.stmt) -> bool:
        return calls_one(own_parts(statement), names) or ast.unparse(statement) in texts

    return sorted(range(len(order)), key=lambda n: is_likely(order[n]))


def _with_called(tree: ast.Module, found: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with those of the script's functions that they call."""
    functions: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            functions.setdefault(node.name, []).extend(node.body)
    all_found, latest = list(found), list(found)
    for _ in range(DEEPEST):
        calls = (n for s in latest for n in own_parts(s) if isinstance(n, ast.Call))
        called = [s for call in calls for s in functions.get(last_name(call.func), ())]
        latest = [inner for s in called for inner in _inside(s) if inner not in all_found]
        all_found += latest
    return all_found


def _inside(statement: ast.stmt) -> list[ast.stmt]:
    """Return a statement and the statements in its blocks."""
    return [n for n in ast.walk(statement) if isinstance(n, ast.stmt)]
