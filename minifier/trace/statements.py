"""The statements of a program: the one at a line, its block, and what follows a call in it."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import re
from collections.abc import Iterator
from typing import NamedTuple

DESCRIBED = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?P<text>.+)")
"""The description of a statement or a call: its file, its line and its text."""
BLOCKS = ast.With | ast.AsyncWith | ast.For | ast.AsyncFor | ast.While | ast.Try
"""Statements that contain others, and inside which Dynamo may be unable to break a graph."""
OPENED = ast.With | ast.AsyncWith | ast.For | ast.AsyncFor
"""Those of which a call in the first line opens a block."""
CHOOSING = re.compile(r"(raise|assert)\b")
"""The beginning of a statement that raises an exception of its choice."""


class StatementBlock(NamedTuple):
    """The lines of a statement that contains others, and how its first line reads."""

    file: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first}: {self.text}  (lines {self.first} to {self.last})"


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


def chooses_exception(filename: str, line: int, shown: str) -> bool:
    """Return whether the program chooses what is raised at a line: in a `raise` or an `assert`.

    `shown` is the line as a traceback has it. It decides if the file does not have it any more.
    """
    tree = _tree(filename)
    if tree is None or linecache.getline(filename, line).strip() != shown.strip():
        return CHOOSING.match(shown) is not None
    return any(
        isinstance(node, ast.Raise | ast.Assert)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
    )


def block_at(place: str) -> StatementBlock | None:
    """Return the block that begins at a line; None if the statement there contains no others."""
    found = _described(place)
    if found is None or not isinstance(found[0], BLOCKS) or found[0].lineno != found[1]:
        return None
    return _block(place, found[0])


def block_opened_by(call: str, following: str) -> StatementBlock | None:
    """Return the block that a call in its first line opens, if capture cannot end inside.

    `following` is the next place where it can end: the same line, or the body, if it can.
    """
    found, other = _described(call), DESCRIBED.fullmatch(following)
    if found is None or not isinstance(found[0], OPENED):
        return None
    opened = found[0]
    block = _block(call, opened)
    if other and other["file"] == block.file and block.first <= int(other["line"]) <= block.last:
        return None
    return block


def _described(place: str) -> tuple[ast.stmt, int] | None:
    """Return the statement at the line of a description, and the line."""
    described = DESCRIBED.fullmatch(place)
    if described is None:
        return None
    line = int(described["line"])
    statement = statement_at(described["file"], line)
    return (statement, line) if isinstance(statement, ast.stmt) else None


def _block(place: str, statement: ast.stmt) -> StatementBlock:
    file, first = place.partition(f":{_line(place)}: ")[0], statement.lineno
    text = linecache.getline(file, first).strip()
    return StatementBlock(file, first, statement.end_lineno or first, text)


def _line(place: str) -> int:
    described = DESCRIBED.fullmatch(place)
    return int(described["line"]) if described else 0


def hides_statements(call: str, following: str, within: str) -> bool:
    """Return whether other statements that may be at fault lie between a call and the next place.

    They end before `following`, the next place where a capture can end, if that is in the same
    block `within`, and otherwise with the block. A statement may be at fault if it reads outside
    state, and a block that a `with` opens may always be.
    """
    found, around = _described(call), block_at(within)
    tree = _tree(around.file) if around else None
    if found is None or around is None or tree is None or not call.startswith(f"{around.file}:"):
        return False
    other, begin = DESCRIBED.fullmatch(following), found[0].end_lineno or found[1]
    if isinstance(found[0], BLOCKS | ast.If | ast.Match):
        begin = found[1]
    inside = other is not None and other["file"] == around.file
    end = int(other["line"]) if other and inside and begin < int(other["line"]) else around.last + 1
    aside = _locals(tree, found[0]) | {"torch", *vars(builtins)}
    return any(
        isinstance(node, ast.With | ast.AsyncWith)
        or any(_reads(part, aside) for part in _evaluated(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and begin < node.lineno
        and (node.end_lineno or node.lineno) < end
        and around.first <= node.lineno <= around.last
    )


def _reads(node: ast.AST, aside: set[str]) -> bool:
    """Return whether a node reads an attribute of a name, a global or a closure variable."""
    if not (isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)):
        return False
    known = isinstance(node, ast.Name) and node.id in aside
    return not known and not ast.unparse(node).startswith("torch.")


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
    found = _place_of(described["text"], nodes)
    if found is None:
        return False
    around = _lambda_around(nodes[found], statement)
    if around is None:
        names = _locals(tree, statement)
    else:
        names = {node.arg for node in ast.walk(around.args) if isinstance(node, ast.arg)}
        nodes = list(_evaluated(around.body))
    begin = _place_of(described["text"], nodes) or 0
    other = DESCRIBED.fullmatch(following)
    end = _place_of(other["text"], nodes, begin + 1) if other else None
    aside = names | {"torch", *vars(builtins)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if end is None and stored - aside:
        return True
    called = {id(part) for node in nodes if isinstance(node, ast.Call) for part in _chain(node)}
    return any(id(node) not in called and _reads(node, aside) for node in nodes[begin + 1 : end])


def _place_of(shown: str, nodes: list[ast.AST], first: int = 0) -> int | None:
    """Return the place of an expression among nodes; None if it is not there, or was shortened."""
    try:
        text = ast.unparse(ast.parse(shown, mode="eval"))
    except SyntaxError:
        return None
    later = (n for n, node in enumerate(nodes) if n >= first and isinstance(node, ast.expr))
    return next((n for n in later if ast.unparse(nodes[n]) == text), None)


def _lambda_around(expression: ast.AST, statement: ast.AST) -> ast.Lambda | None:
    """Return the innermost lambda of a statement whose body holds an expression."""
    around = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Lambda) and any(n is expression for n in ast.walk(node.body))
    ]
    return around[-1] if around else None


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
