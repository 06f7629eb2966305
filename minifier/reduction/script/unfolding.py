"""Writes out what stands for something else: aliases, comprehensions, context managers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.inlining import (
    Substituting,
    assignments,
    given_values,
    own_ends,
)
from tcdebug.minifier.reduction.script.loops import elements_of, values_of
from tcdebug.minifier.reduction.script.rewriting import (
    Rewrite,
    SyntaxReduction,
    expressions,
    statements,
)
from tcdebug.minifier.reduction.script.scopes import is_declared, names_of, scopes_of


class ReplaceAliases(SyntaxReduction):
    """Replaces a name by the name that it stands for, and the calls of a function that returns one.

    A constant that such a function returns counts too.
    """

    name = "replace_aliases"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each name that is bound once, and for each such function."""
        calls = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
        found = []
        for statement, scope in scopes_of(tree):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() as value):
                    names = names_of(scope, name)
                    uses: Sequence[ast.expr] = [n for n in names if isinstance(n.ctx, ast.Load)]
                    if len(names) == len(uses) + 1 and not is_declared(scope, name):
                        found.append(_replaced(statement, uses, value))
                case ast.FunctionDef(
                    name=name, decorator_list=[],
                    body=[ast.Return(value=ast.Name() | ast.Constant() as value)],
                ) if not _parameters(statement.args):  # fmt: skip
                    made = [calls.get(id(use)) for use in names_of(scope, name)]
                    plain = [c for c in made if c is not None and not (c.args or c.keywords)]
                    if len(plain) == len(made):
                        found.append(_replaced(statement, plain, value))
        return found


def _replaced(statement: ast.stmt, uses: Sequence[ast.expr], value: ast.expr) -> Rewrite:
    """Return the edit that puts a value in the place of uses, without what defines them."""
    return Rewrite(((statement, ()), *((use, (deepcopy(value),)) for use in uses)))


def _parameters(arguments: ast.arguments) -> bool:
    return any(isinstance(node, ast.arg) for node in ast.walk(arguments))


class WriteOutComprehensions(SyntaxReduction):
    """Replaces a comprehension over a display or a range by the display of its elements."""

    name = "write_out_comprehensions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each comprehension with one loop and no condition.

        A starred list of one element becomes the element.
        """
        found = []
        for node in expressions(tree):
            match node:
                case ast.DictComp(key=key, value=value, generators=[loop]):
                    parts: list[ast.expr] = [key, value]
                case (
                    ast.ListComp(elt=element, generators=[loop])
                    | ast.SetComp(elt=element, generators=[loop])
                    | ast.GeneratorExp(elt=element, generators=[loop])
                ):
                    parts = [element]
                case ast.Starred(value=ast.List(elts=[element]) | ast.Tuple(elts=[element])):
                    found.append(Rewrite.of(node, element))
                    continue
                case _:
                    continue
            columns = [[*_written_out(part, loop)] for part in parts]
            if not columns[0]:
                continue
            found.append(Rewrite.of(node, _display(node, columns)))
        return found


def _display(node: ast.expr, columns: Sequence[list[ast.expr]]) -> ast.expr:
    """Return the dictionary, set or list with the elements of a comprehension."""
    if isinstance(node, ast.DictComp):
        return ast.Dict([*columns[0]], columns[1])
    return (
        ast.Set(columns[0]) if isinstance(node, ast.SetComp) else ast.List(columns[0], ast.Load())
    )


def _written_out(part: ast.expr, loop: ast.comprehension) -> Iterator[ast.expr]:
    """Yield a part of a comprehension for each element of the display that it iterates over."""
    match loop:
        case ast.comprehension(target=target, iter=iterator, ifs=[], is_async=0):
            names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            elements = elements_of(iterator)
        case _:
            return
    if isinstance(target, ast.Name):
        bound = [{target.id: element} for element in elements]
    else:
        bound = [dict(values_of(target, element)) for element in elements]
    if all(values.keys() == names for values in bound):
        for values in bound:
            yield Substituting(values).visit(deepcopy(part))


class InlineContexts(SyntaxReduction):
    """Puts a block in the place of the `yield` of the script's own context manager.

    The manager is a function that yields once, as a statement or as the body of a `try`.
    """

    name = "inline_contexts"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each block with one such manager."""
        managers = {
            s.name: s
            for s in statements(tree)
            if isinstance(s, ast.FunctionDef) and len(s.decorator_list) == 1
        }
        found = []
        for statement in statements(tree):
            match statement:
                case ast.With(items=[ast.withitem(ast.Call(func=ast.Name(id=name)) as call, as_)]):
                    if (manager := managers.get(name)) is not None:
                        body = _around(manager, call, as_, statement.body)
                        found += [Rewrite.of(statement, *body)] if body else []
        return found


def _around(
    manager: ast.FunctionDef, call: ast.Call, target: ast.expr | None, block: Sequence[ast.stmt]
) -> list[ast.stmt]:
    """Return a block with what its manager does around it; nothing if that is not known."""
    values = given_values(manager.args, call.args, call.keywords)
    ends = [n for s in manager.body for n in own_ends(s)]
    if values is None or len(ends) != 1:
        return []
    written = assignments(values)
    for place, statement in enumerate(manager.body):
        match statement:
            case ast.Expr(ast.Yield(value=value)):
                after: list[ast.stmt] = []
            case ast.Try(
                body=[ast.Expr(ast.Yield(value=value))], handlers=[], finalbody=after, orelse=[]
            ):
                pass
            case _:
                continue
        given = ast.Constant(None) if value is None else value
        bound: list[ast.stmt] = [] if target is None else [ast.Assign([target], given)]
        before, rest = manager.body[:place], manager.body[place + 1 :]
        return deepcopy([*written, *before, *bound, *block, *after, *rest])
    return []
