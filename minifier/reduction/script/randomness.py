"""Replaces random tensors by constant ones, so that a script needs no seed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tcdebug.minifier.reduction.script.rewriting import (
    Rewrite,
    SyntaxReduction,
    expressions,
    statements,
)
from tcdebug.minifier.reduction.script.validity.comparability import SEED

CONSTANT = {"rand": "ones", "randn": "ones", "rand_like": "ones_like", "randn_like": "ones_like"}
"""Functions of torch that draw numbers -> functions with the same arguments that do not."""


class ReplaceDraws(SyntaxReduction):
    """Replaces all random tensors by constant ones, and removes the seeds."""

    name = "replace_draws"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit, if there are seeds."""
        drawn = [part for node in expressions(tree) for part in _constant(node)]
        seeds: list[tuple[ast.AST, Sequence[ast.AST]]] = [
            (s, ()) for s in statements(tree) if _is_seed(s)
        ]
        return [Rewrite((*seeds, *drawn))] if seeds else []


def _constant(node: ast.expr) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    """Yield the replacement of a call that draws a tensor."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name("torch"), attr=name)) if name in CONSTANT:
            function = ast.Attribute(ast.Name("torch", ast.Load()), CONSTANT[name], ast.Load())
            keywords = [k for k in node.keywords if k.arg != "generator"]
            yield node, (ast.Call(function, node.args, keywords),)
        case ast.Call(
            func=ast.Attribute(value=ast.Name("torch"), attr="randint"), args=[low, _, size]
        ):
            full = ast.Attribute(ast.Name("torch", ast.Load()), "full", ast.Load())
            yield node, (ast.Call(full, [size, low], []),)


def _is_seed(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name))):
            return name == SEED
    return False
