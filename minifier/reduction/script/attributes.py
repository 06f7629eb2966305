"""Finds attributes that nothing in a script sets, so that no run is needed to see them missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, lru_cache

import torch

from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS

INHERITED = (torch.Tensor, torch.nn.Module, torch.autograd.Function, dict, list, set, str, type)
"""Classes that the classes of scripts often extend."""


@lru_cache(maxsize=4096)
def attributes_without_origin(text: str) -> frozenset[str]:
    """Return the attributes that a script reads, and neither it nor a common class may set.

    What a text or a keyword names may become an attribute too.
    """
    nodes = list(ast.walk(ast.parse(text)))
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    return frozenset(read - {name for node in nodes for name in _set(node)} - inherited())


@cache
def inherited() -> frozenset[str]:
    """Return the attributes of common classes."""
    return frozenset(name for owner in INHERITED for name in dir(owner))


def _set(node: ast.AST) -> Iterator[str]:
    """Yield the names under which a node may set an attribute."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Constant(value=str(words)):
            yield from words.lstrip("-").replace("-", "_").split()
        case ast.ClassDef(body=body):
            for statement in body:
                if isinstance(statement, DEFINITIONS):
                    yield statement.name
                yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name))
        case ast.alias(name=name):
            yield from name.split(".")
