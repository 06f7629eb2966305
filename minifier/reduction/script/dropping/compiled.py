"""The names in a script that stand for compiled code, or for functions that run it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from tcdebug.minifier.reduction.script.rewriting import FUNCTIONS, expressions, last_name

COMPILES = "compile"
"""The last part of the names of torch.compile and of the method of a module."""


def names_of_compiled(tree: ast.Module) -> frozenset[str]:
    """Return the names and attributes whose calls may run compiled code.

    A name counts if it is bound to an expression that compiles something, to a function that
    returns such an expression, or to a parameter that is given one. So does a function that calls
    one of these. Names in different scopes are not distinguished.
    """
    found: set[str] = set()
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, FUNCTIONS)}
    before = -1
    while len(found) != before:
        before = len(found)
        for node in ast.walk(tree):
            found.update(_found_at(node, found, functions))
    return frozenset(found)


def names_that_run_it(tree: ast.Module) -> frozenset[str]:
    """Return the names whose calls may run compiled code, or in eager what was compiled."""
    compiled = (
        last_name(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and last_name(call.func) == COMPILES and call.args
    )
    return names_of_compiled(tree) | {name for name in compiled if name}


def arguments_given(tree: ast.Module) -> list[ast.expr]:
    """Return the positional arguments of the calls that may run compiled code."""
    names = names_that_run_it(tree)
    calls = (n for n in expressions(tree) if isinstance(n, ast.Call) and calls_one([n], names))
    return [argument for call in calls for argument in call.args]


def calls_one(nodes: Iterable[ast.AST], names: Collection[str]) -> bool:
    """Return whether one of the nodes is a call of one of these names."""
    return any(isinstance(n, ast.Call) and last_name(n.func) in names for n in nodes)


def _found_at(
    node: ast.AST, found: set[str], functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
) -> Iterator[str]:
    """Yield further names that a node shows to stand for compiled code."""
    match node:
        case ast.Assign(targets=targets, value=value):
            if _is_compiled(value, found):
                yield from filter(None, map(last_name, targets))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            if _is_compiled(value, found):
                yield last_name(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=compiled, attr="compile"))):
            yield last_name(compiled)
        case ast.Call(func=called, args=args):
            if function := functions.get(last_name(called)):
                yield from _parameters_given(function, args, found)
    if isinstance(node, FUNCTIONS):
        decorated = any(
            _is_compiled(d, found) or last_name(d) == COMPILES for d in _decorators(node)
        )
        inside = any(calls_one(ast.walk(s), found) or _returns(s, found) for s in node.body)
        if decorated or inside:
            yield node.name


def _decorators(node: ast.AST) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, FUNCTIONS) else []


def _returns(statement: ast.stmt, found: set[str]) -> bool:
    values = (n.value for n in ast.walk(statement) if isinstance(n, ast.Return) and n.value)
    return any(_is_compiled(value, found) for value in values)


def _is_compiled(value: ast.expr, found: set[str]) -> bool:
    """Return whether an expression compiles something, or is what such a name stands for."""
    if calls_one(ast.walk(value), (COMPILES,)):
        return True
    return last_name(value.func if isinstance(value, ast.Call) else value) in found


def _parameters_given(
    function: ast.FunctionDef | ast.AsyncFunctionDef, args: list[ast.expr], found: set[str]
) -> Iterator[str]:
    """Yield the parameters of a function that are given compiled code."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] == ["self"]:
        del names[0]
    yield from (name for name, arg in zip(names, args, strict=False) if _is_compiled(arg, found))
