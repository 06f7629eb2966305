"""Writes the check that fails as an assertion, where the script raises or collects failures."""

from __future__ import annotations

import ast

from tcdebug.minifier.reduction.script.rewriting import Rewrite, SyntaxReduction, statements


class RaisesToAssertions(SyntaxReduction):
    """Replaces a condition with `raise AssertionError` by an assertion.

    A list of failures whose emptiness is checked at the end is left out: what would enter it raises
    instead.
    """

    name = "raises_to_assertions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each condition, and for each list of failures."""
        found = []
        for statement in statements(tree):
            match statement:
                case ast.If(test=test, body=[ast.Raise() as raised], orelse=[]) if _asserts(raised):
                    found.append(Rewrite.of(statement, ast.Assert(_not(test), None)))
                    if isinstance(test, ast.Name):
                        found += _at_once(tree, test.id, statement)
                case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name))):
                    found += _at_once(tree, name, statement)
        return found


def _asserts(raised: ast.Raise) -> bool:
    error = raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc
    return isinstance(error, ast.Name) and error.id == "AssertionError"


def _not(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _at_once(tree: ast.Module, name: str, check: ast.stmt) -> list[Rewrite]:
    """Return the edit that raises where a list of failures grows, if that is all it is used for."""
    grows, made = [], []
    for statement in statements(tree):
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(ast.Name(id=of), "append"))) if of == name:
                grows.append(statement)
            case ast.Assign(targets=[ast.Name(id=of)]) if of == name:
                made.append(statement)
    if not grows or len(made) != 1:
        return []
    error = ast.Raise(ast.Name("AssertionError", ast.Load()), None)
    return [Rewrite(((check, ()), (made[0], ()), *((s, (error,)) for s in grows)))]
