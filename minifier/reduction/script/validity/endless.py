"""Finds loops that cannot end, so that no run waits for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS

LEAVING = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await, ast.Try)
PLAIN = (
    ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop,
    ast.unaryop, ast.expr_context,
)  # fmt: skip


@lru_cache(maxsize=4096)
def endless_loops(text: str) -> frozenset[str]:
    """Return the texts of loops in a script that end only by an exception, which nothing catches.

    Their condition is made of names and constants, none of which the loop binds, and they contain
    nothing that leaves them. A loop inside a `try` may end by an exception.
    """
    return frozenset(ast.unparse(n) for n in _loops(ast.parse(text)) if _is_endless(n))


def _loops(node: ast.AST) -> Iterator[ast.While]:
    """Yield the loops that are outside of every `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.While):
            yield child
        if not isinstance(child, ast.Try):
            yield from _loops(child)


def _is_endless(loop: ast.While) -> bool:
    condition = list(ast.walk(loop.test))
    if not all(isinstance(node, PLAIN) for node in condition):
        return False
    if isinstance(loop.test, ast.Constant) and not loop.test.value:
        return False
    body = [node for statement in loop.body for node in ast.walk(statement)]
    if any(isinstance(node, (*LEAVING, ast.Global, ast.Nonlocal)) for node in body):
        return False
    read = {node.id for node in condition if isinstance(node, ast.Name)}
    return not read & set(_bound(body))


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
