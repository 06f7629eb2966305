"""Describes a source line as the subject of a decision: its place, its text, its constructs."""

from __future__ import annotations

import ast
import dis
import linecache
import os
import textwrap
from collections.abc import Iterator
from types import CodeType

from tcdebug.minifier.trace.statements import statement_at

MAX_TEXT = 100
"""Characters of a line that a subject shows."""


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
    statement = statement_at(code.co_filename, line)
    if statement is None:
        return ()
    return tuple(dict.fromkeys(_described(statement, code)))


def begins_try(filename: str, line: int) -> bool:
    """Return whether a `try` statement begins at a line."""
    found = statement_at(filename, line)
    return isinstance(found, ast.Try) and found.lineno == line


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
