"""Finds what reads and binds a variable, in the function or the module that it belongs to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS, FUNCTIONS

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_read(name: ast.Name) -> bool:
    """Return whether a name is read, rather than bound or deleted."""
    return isinstance(name.ctx, ast.Load)


def scopes_of(tree: ast.Module) -> Iterator[tuple[ast.stmt, Scope]]:
    """Yield the statements of a tree, each with the innermost scope around it."""
    yield from _scopes(tree, tree)


def _scopes(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.stmt, Scope]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, scope
        yield from _scopes(child, child if isinstance(child, DEFINITIONS) else scope)


def blocks_of(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield all blocks of statements of a tree."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):  # the body of a lambda is an expression
                yield block


def names_of(scope: Scope, name: str) -> list[ast.Name]:
    """Return the nodes that read or bind a variable of a scope, also in functions inside it.

    Functions that have a variable of their own with this name are left out.
    """
    return list(_names(scope, name))


def is_declared(scope: Scope, name: str) -> bool:
    """Return whether a function in a scope declares a name as global or nonlocal."""
    nodes = ast.walk(scope)
    return any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in nodes)


def _names(node: ast.AST, name: str) -> Iterator[ast.Name]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id == name:
            yield child
        if isinstance(child, (*FUNCTIONS, ast.Lambda)) and _has_own(child, name):
            yield from _outside(child, name)
        else:
            yield from _names(child, name)


def _outside(function: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield the names in what a function evaluates when it is defined."""
    assert isinstance(function, (*FUNCTIONS, ast.Lambda))
    given = function.args
    outside: list[ast.AST] = [*given.defaults, *(d for d in given.kw_defaults if d is not None)]
    if not isinstance(function, ast.Lambda):
        outside += function.decorator_list
    for node in outside:
        yield from (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name)


def _has_own(function: ast.AST, name: str) -> bool:
    """Return whether a name is a parameter of a function, or bound in its body."""
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=bound) | ast.Name(id=bound, ctx=ast.Store()) if bound == name:
                return True
    return False
