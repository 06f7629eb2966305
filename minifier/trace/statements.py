"""The statements of a program: the one at a line, and what it reads after a call in it."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import re
from collections.abc import Iterator

DESCRIBED = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?P<text>.+)")
"""The description of a call: its file, its line and its text."""


@functools.lru_cache(maxsize=64)
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return None


def statement_at(filename: str, line: int) -> ast.AST | None:
    """Return the smallest statement that contains a line."""
    tree = _tree(filename)
    if tree is None:
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def reads_after(call: str, following: str) -> bool:
    """Return whether a statement reads outside state after a call and before the one that follows.

    Both are given as the decisions on calls describe them. If `following` is not in the same
    statement, the rest of the statement counts. A read is one of an attribute, a global or a
    closure variable. An assignment to one of the latter counts as well.
    """
    described = DESCRIBED.fullmatch(call)
    statement = statement_at(described["file"], int(described["line"])) if described else None
    tree = _tree(described["file"]) if described else None
    if statement is None or tree is None or described is None:
        return False
    nodes = list(_evaluated(statement))
    texts = [ast.unparse(node) if isinstance(node, ast.expr) else "" for node in nodes]
    begin = _place_of(described["text"], texts)
    if begin is None:
        return False
    other = DESCRIBED.fullmatch(following)
    end = _place_of(other["text"], texts, begin + 1) if other else None
    aside = _locals(tree, statement) | {"torch", *vars(builtins)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if end is None and stored - aside:
        return True
    called = {id(part) for node in nodes if isinstance(node, ast.Call) for part in _chain(node)}
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in called
        and not (isinstance(node, ast.Name) and node.id in aside)
        and not ast.unparse(node).startswith("torch.")
        for node in nodes[begin + 1 : end]
    )


def _place_of(shown: str, texts: list[str], first: int = 0) -> int | None:
    """Return the place of an expression among texts; None if it is not there, or was shortened."""
    try:
        text = ast.unparse(ast.parse(shown, mode="eval"))
    except SyntaxError:
        return None
    return next((n for n, each in enumerate(texts) if n >= first and each == text), None)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement as they are evaluated, without the statements in it."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Assign | ast.ListComp | ast.SetComp | ast.GeneratorExp):
        children.sort(key=lambda child: child in (getattr(node, "elt", None), *_targets(node)))
    for child in children:
        if not isinstance(child, ast.stmt):
            yield from _evaluated(child)
    yield node


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else []


def _chain(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what a call calls, and what its name begins with: `a.b` and `a` of `a.b(x)`."""
    part = call.func
    while isinstance(part, ast.Attribute):
        yield part
        part = part.value
    if isinstance(part, ast.Name):
        yield part


def _locals(tree: ast.Module, statement: ast.AST) -> set[str]:
    """Return the local variables of the innermost function around a statement."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(inner is statement for inner in ast.walk(node))
    ]
    names: set[str] = set()
    outer: set[str] = set()
    for node in ast.walk(max(around, key=lambda each: each.lineno)) if around else ():
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
    return names - outer
