"""Finds attributes that a version of a script no longer sets: no run is needed to see that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, lru_cache

import torch

from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS

INHERITED = (torch.Tensor, torch.nn.Module, torch.autograd.Function, dict, list, set, str, type)
"""Classes that the classes of scripts often extend."""


def lost_attributes(text: str, original: str) -> frozenset[str]:
    """Return the attributes that a version of a script reads and only the original sets.

    Attributes of common classes may be inherited.
    """
    read, may_set, _ = _attributes(text)
    _, _, stored = _attributes(original)
    return (read - may_set - inherited()) & stored


@lru_cache(maxsize=4096)
def _attributes(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the attributes that a script reads, those that it may set, and those that it stores.

    What a text or a keyword names may become an attribute too.
    """
    nodes = list(ast.walk(ast.parse(text)))
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    stored = {name for node in nodes for name in _stored(node)}
    named = {name for node in nodes for name in _named(node)}
    return frozenset(read), frozenset(stored | named), frozenset(stored)


@cache
def inherited() -> frozenset[str]:
    """Return the attributes of common classes."""
    return frozenset(name for owner in INHERITED for name in dir(owner))


def _stored(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that a node sets."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.ClassDef(body=body):
            for statement in body:
                if isinstance(statement, DEFINITIONS):
                    yield statement.name
                else:
                    yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name))


def _named(node: ast.AST) -> Iterator[str]:
    """Yield the names of attributes that a call may set."""
    match node:
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Constant(value=str(words)):
            yield from words.lstrip("-").replace("-", "_").split()
