"""Describes a source line as the subject of a decision: its place, its text, its constructs."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import linecache
import os
import re
import textwrap
from collections.abc import Iterator
from types import CodeType

MAX_TEXT = 100
"""Characters of a line that a subject shows."""

DESCRIBED = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?P<text>.+)")
"""The description of an expression: its file, its line and its text."""


def shown_path(code: CodeType) -> str:
    """Return the file of code, relative to the working folder if it is inside it."""
    name = code.co_filename
    if os.path.isabs(name) and not (near := os.path.relpath(name)).startswith(".."):
        return near
    return name


def subject(code: CodeType, line: int) -> str:
    """Return `file:line: text`, and the constructs that depend on more than local variables."""
    text = linecache.getline(code.co_filename, line).strip()[:MAX_TEXT]
    found = constructs(code, line)
    note = f"  ({', '.join(found)})" if found else ""
    return f"{shown_path(code)}:{line}: {text}{note}"


def expression(code: CodeType, positions: dis.Positions) -> str:
    """Return `file:line: text` of an expression, with the first line of its text."""
    line = positions.lineno or code.co_firstlineno
    text = linecache.getline(code.co_filename, line).encode()
    more = positions.end_lineno != line
    end = None if more else positions.end_col_offset
    shown = text[positions.col_offset or 0 : end].decode(errors="replace").strip()
    return f"{shown_path(code)}:{line}: {shown[:MAX_TEXT]}{' ...' * more}"


def constructs(code: CodeType, line: int) -> tuple[str, ...]:
    """Return the constructs of the statement at a line that read or change outside state."""
    statement = _statement(code.co_filename, line)
    if statement is None:
        return ()
    return tuple(dict.fromkeys(_described(statement, code)))


def begins_try(filename: str, line: int) -> bool:
    """Return whether a `try` statement begins at a line."""
    found = _statement(filename, line)
    return isinstance(found, ast.Try) and found.lineno == line


def reads_after(call: str, following: str) -> bool:
    """Return whether a statement reads outside state after a call and before the one that follows.

    Both are given as `expression` describes them. If `following` is not in the same statement, the
    rest of the statement counts. A read is one of an attribute, a global or a closure variable.
    """
    described = DESCRIBED.fullmatch(call)
    statement = _statement(described["file"], int(described["line"])) if described else None
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
    for node in ast.walk(max(around, key=lambda each: each.lineno)) if around else ():
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@functools.lru_cache(maxsize=64)
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return None


def _statement(filename: str, line: int) -> ast.AST | None:
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


def _described(statement: ast.AST, code: CodeType) -> Iterator[str]:
    """Yield descriptions of the constructs in a statement."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        managers = ", ".join(ast.unparse(i.context_expr) for i in statement.items)
        yield f"context manager `{_short(managers)}`"
    if isinstance(statement, ast.For | ast.While):
        yield "loop"
    if isinstance(statement, ast.Try):
        yield "try block"
    called = {id(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    for node in ast.walk(statement):
        if id(node) in called:
            continue
        match node:
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                yield "comprehension"
            case ast.Lambda():
                yield "lambda"
            case ast.Call():
                yield f"call of {_origin(node.func, code)}"
            case ast.Name(id=name) if name in code.co_freevars:
                yield f"closure variable `{name}`"
            case ast.Attribute(value=ast.Name(id=name)) if name in code.co_varnames:
                yield f"attribute `{ast.unparse(node)}`"
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield f"assigns the outer variable: `{', '.join(names)}`"


def _origin(called: ast.expr, code: CodeType) -> str:
    """Describe what is called, and where its name comes from."""
    text = f"`{_short(ast.unparse(called))}`"
    if isinstance(called, ast.Name) and called.id in code.co_freevars:
        return f"closure variable {text}"
    if isinstance(called, ast.Name) and called.id in code.co_varnames:
        return f"local variable {text}"
    return text


def _short(text: str) -> str:
    return textwrap.shorten(text, 40, placeholder="...")
