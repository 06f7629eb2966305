"""Puts the body of a function or a method in the place of its only call."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    own_parts,
    statements,
)

RUN_OTHERWISE = (*DEFINITIONS, ast.While, ast.Try, ast.Match)
"""Statements of which a part runs later or more than once."""
Inlined = tuple[list[ast.stmt], ast.expr | None]
"""The statements that run before a call's value, and that value, if there is one."""


class InlineFunctions(SyntaxReduction):
    """Replaces the only call of a function by its body.

    The function returns only at its end, or yields once, at its end: it then counts as an iterator
    of one value. The body goes before the statement that calls. A function that is one expression
    replaces its only call anywhere.
    """

    name = "inline_functions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such function."""
        functions = {s.name: s for s in statements(tree) if isinstance(s, ast.FunctionDef)}
        uses = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))

        def called(call: ast.Call) -> ast.FunctionDef | None:
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            function = functions.get(name)
            once = function is not None and uses[name] == 1 and not function.decorator_list
            return function if once else None

        found = []
        for statement, call in _calls(tree):
            function = called(call)
            if function is not None and (inlined := _inlined(function, call.args, call)):
                found.append(_in_place(statement, call, function, inlined))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (function := called(node)) is not None:
                value = _as_expression(function, node)
                if value is not None:
                    found.append(Rewrite(((node, (value,)), (function, ()))))
        return found


class InlineMethods(SyntaxReduction):
    """Replaces the only call of a method by its body, with the object in place of `self`.

    No other attribute has the method's name, and the object is a name or an attribute of one.
    """

    name = "inline_methods"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such method."""
        uses = Counter(n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))
        defined = Counter(m.name for _, m in _methods(tree))
        methods = {m.name: m for _, m in _methods(tree) if defined[m.name] == uses[m.name] == 1}
        found = []
        for statement, call in _calls(tree):
            if not isinstance(call.func, ast.Attribute) or not _is_place(call.func.value):
                continue
            method = methods.get(call.func.attr)
            if method is None or method.decorator_list or not method.args.args:
                continue
            inlined = _inlined(_of_object(method, call.func.value), call.args, call)
            if inlined is not None:
                found.append(_in_place(statement, call, method, inlined))
        return found


def _methods(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    for owner in statements(tree):
        if isinstance(owner, ast.ClassDef):
            yield from ((owner, m) for m in owner.body if isinstance(m, ast.FunctionDef))


def _is_place(node: ast.expr) -> bool:
    """Return whether an expression is a name, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _of_object(method: ast.FunctionDef, owner: ast.expr) -> ast.FunctionDef:
    """Return a method as a function that reads its object from an expression."""
    function = deepcopy(method)
    own = function.args.args.pop(0).arg
    substituting = Substituting({own: owner})
    function.body = [substituting.visit(s) for s in function.body]
    return function


def _calls(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """Yield the calls of each statement before which other statements may be put."""
    for statement in statements(tree):
        if not isinstance(statement, RUN_OTHERWISE):
            yield from ((statement, n) for n in own_parts(statement) if isinstance(n, ast.Call))


def _in_place(
    statement: ast.stmt, call: ast.Call, function: ast.FunctionDef, inlined: Inlined
) -> Rewrite:
    """Return the edit that puts a function's body before a statement and its value in place."""
    before, value = inlined
    whole = getattr(statement, "value", None) is call
    if value is None and whole:
        return Rewrite(((statement, before), (function, ())))
    given = ast.Constant(None) if value is None else value
    return Rewrite(((statement, (*before, statement)), (call, (given,)), (function, ())))


def _inlined(function: ast.FunctionDef, args: Sequence[ast.expr], call: ast.Call) -> Inlined | None:
    """Return what replaces a call; None if the function cannot be inlined."""
    values = given_values(function.args, args, call.keywords)
    if values is None:
        return None
    *before, last = function.body
    bindings = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in values.items()
        if not (isinstance(value, ast.Name) and value.id == name)
    ]
    ends = [n for s in function.body for n in own_ends(s)]
    match last:
        case ast.Return() if ends == [last]:
            return [*bindings, *before], last.value
        case ast.Expr(ast.Yield(value=value) as end) if ends == [end]:
            element = ast.Constant(None) if value is None else value
            one = ast.List([element], ast.Load())
            return [*bindings, *before], ast.Call(ast.Name("iter", ast.Load()), [one], [])
        case _ if not ends:
            return [*bindings, *function.body], None
    return None


def given_values(
    parameters: ast.arguments, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> dict[str, ast.expr] | None:
    """Return the value of each parameter in a call; None if that is not written there."""
    if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs:
        return None
    named = [a.arg for a in parameters.args]
    if any(isinstance(a, ast.Starred) for a in args) or len(args) > len(named):
        return None
    given = dict(zip(named, args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
    values = dict(zip(named[::-1], parameters.defaults[::-1], strict=False)) | given
    return values if set(values) == set(named) and len(args) + len(keywords) == len(given) else None


def own_ends(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the returns and yields of a function, without those of functions inside it."""
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal):
        yield node
    if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from own_ends(child)


def _as_expression(function: ast.FunctionDef, call: ast.Call) -> ast.expr | None:
    """Return a function of one expression with a call's arguments; None for other functions.

    `yield from x` as the whole body counts as the expression `x`. Each parameter may be read at
    most once.
    """
    match function.body:
        case [ast.Return(value=ast.expr() as value)] | [ast.Expr(ast.YieldFrom(value=value))]:
            pass
        case _:
            return None
    names = [a.arg for a in function.args.args]
    plain = ast.arguments([], function.args.args, None, [], [], None, [])
    if call.keywords or len(call.args) != len(names):
        return None
    if ast.dump(plain) != ast.dump(function.args):
        return None
    return substituted(value, dict(zip(names, call.args, strict=True)))


def substituted(value: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr | None:
    """Return an expression with names replaced; None if it reads one of them more than once."""
    read = Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
    if any(read[name] > 1 for name in given):
        return None
    found: ast.expr = Substituting(given).visit(deepcopy(value))
    return found


class Substituting(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._given.get(node.id, node)
