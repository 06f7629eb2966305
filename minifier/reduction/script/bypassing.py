"""Bypasses the modules of a model: their calls become their arguments."""

from __future__ import annotations

import ast

from tcdebug.minifier.reduction.script.rewriting import (
    FUNCTIONS,
    Rewrite,
    SyntaxReduction,
    expressions,
    last_name,
    statements,
)

FORWARD = "forward"


class BypassModules(SyntaxReduction):
    """Replaces the calls in the `forward` of a class by their first argument.

    Most modules return a tensor of the shape that they are given, so a model can do without them,
    and then without their classes.
    """

    name = "bypass_modules"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each call of a module, outer ones first."""
        found = []
        for method in statements(tree):
            if not (isinstance(method, FUNCTIONS) and method.name == FORWARD):
                continue
            given = method.args.args[0].arg if method.args.args else ""
            found += [
                Rewrite.of(node, node.args[0])
                for node in expressions(method)
                if isinstance(node, ast.Call) and node.args and _is_module(node.func, given)
                if not isinstance(node.args[0], ast.Constant | ast.Starred)
            ]
        return found


def _is_module(called: ast.expr, owner: str) -> bool:
    """Return whether what is called may be a module: `self.norm`, `self.blocks[0]`, `block`."""
    while isinstance(called, ast.Subscript):
        called = called.value
    match called:
        case ast.Attribute(value=ast.Name(id=name)):
            return name == owner
    return isinstance(called, ast.Name) and last_name(called) != "super"
