"""Writes functions for the constants that they are called with, such as `run(compile=True)`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.functions import (
    defined_functions,
    is_static,
    reaches,
    wrapped_functions,
)
from tcdebug.minifier.reduction.script.inlining import (
    Substituting,
    calls_of_function,
    calls_of_method,
    given_values,
    methods_of,
)
from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    last_name,
    statements,
)
from tcdebug.minifier.reduction.script.scopes import is_declared, is_read, names_of

MOST = 8
"""The limit on the statements of a function that becomes an expression."""
LONGEST = 120
"""The limit on an expression that stands for a function, in characters."""


class ConstantParameters(SyntaxReduction):
    """Replaces a parameter by the constant that all calls give it, and drops it.

    A call that names the parameter counts if the script does not define what it calls: it may run
    the function through an object or a compiled function.
    """

    name = "constant_parameters"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such parameter."""
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        wrapped = dict(wrapped_functions(tree))
        named = {s.name for s in statements(tree) if isinstance(s, DEFINITIONS)}
        found = []
        for owner, function in defined_functions(tree):
            called = owner.name if owner and function.name == "__init__" else function.name
            direct = [c for c in calls if reaches(c.func, called, wrapped)]
            known = {id(c) for c in direct}
            others = [c for c in calls if id(c) not in known and last_name(c.func) not in named]
            hidden = owner is not None and not is_static(function)
            for place, (parameter, default) in enumerate(_parameters(function.args)[hidden:]):
                name = parameter.arg
                by_name = [c for c in others if any(k.arg == name for k in c.keywords)]
                given = [_given(c, name, place) for c in (*direct, *by_name)]
                if (edit := _without(function, parameter, default, given)) is not None:
                    found.append(edit)
        return found


def _parameters(given: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters with their defaults, except those that can be given by name only."""
    names = [*given.posonlyargs, *given.args]
    required = len(names) - len(given.defaults)
    return [*zip(names, [*[None] * required, *given.defaults], strict=True)]


def _given(call: ast.Call, parameter: str, place: int) -> ast.AST | None:
    """Return the argument or the keyword that gives a parameter its value; None by default."""
    for keyword in call.keywords:
        if keyword.arg == parameter or keyword.arg is None:
            return keyword
    starred = next((a for a in call.args[: place + 1] if isinstance(a, ast.Starred)), None)
    return starred or (call.args[place] if place < len(call.args) else None)


def _without(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    parameter: ast.arg,
    default: ast.expr | None,
    given: Sequence[ast.AST | None],
) -> Rewrite | None:
    """Return the edit that drops a parameter; None if it has no single constant value."""
    values = [_value(one) if one is not None else default for one in given or [None]]
    constants = [v for v in values if isinstance(v, ast.Constant)]
    if len(constants) != len(values) or len({repr(v.value) for v in constants}) != 1:
        return None
    uses = names_of(function, parameter.arg)
    if is_declared(function, parameter.arg) or not all(is_read(n) for n in uses):
        return None
    removed = [parameter, *filter(None, given), *([default] if default is not None else [])]
    read = [(name, (ast.Constant(constants[0].value),)) for name in uses]
    return Rewrite((*((node, ()) for node in removed), *read))


def _value(given: ast.AST) -> ast.AST:
    return given.value if isinstance(given, ast.keyword) and given.arg else given


class FoldConstants(SyntaxReduction):
    """Replaces what a constant decides, such as `if True:`, by what runs. Assertions stay."""

    name = "fold_constants"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such statement or expression, outer ones first."""
        return [Rewrite.of(node, *folded) for node, folded in _folded_nodes(tree)]


def _folded_nodes(node: ast.AST) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert):
            continue
        folded = _chosen(child)
        if folded is None:
            yield from _folded_nodes(child)
        else:
            yield child, folded


def _chosen(node: ast.AST) -> Sequence[ast.AST] | None:
    """Return what a node with a constant condition comes down to; None for any other node."""
    match node:
        case ast.If(test=ast.Constant(value=value), body=body, orelse=orelse):
            return body if value else orelse
        case ast.IfExp(test=ast.Constant(value=value), body=yes, orelse=no):
            return [yes if value else no]
        case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=value)):
            return [ast.Constant(not value)]
        case ast.BoolOp(op=op, values=[ast.Constant(value=value) as first, *rest]):
            if bool(value) is not isinstance(op, ast.And):
                return [first]
            return rest if len(rest) == 1 else [ast.BoolOp(op, rest)]
        case ast.Compare(
            left=ast.Constant(value=left), ops=[op], comparators=[ast.Constant(value=right)]
        ) if isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return [ast.Constant((left == right) is isinstance(op, ast.Eq | ast.Is))]
    return None


class Folding(ast.NodeTransformer):
    """Replaces what constants decide, inner nodes first."""

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        """Visit a node, and return what it comes down to."""
        self.generic_visit(node)
        folded = _chosen(node)
        if folded is None:
            return node
        return list(folded) if isinstance(node, ast.stmt) else folded[0]


class SpecialiseCalls(SyntaxReduction):
    """Replaces all calls of a function by what it computes for their arguments.

    With constants for its flags, a function of several statements may be one expression, and
    another one for each call. Variables are replaced by their values.
    """

    name = "specialise_calls"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each function and method."""
        found: list[Rewrite] = []
        for function in statements(tree):
            if isinstance(function, ast.FunctionDef) and _may_be_expression(function):
                called = calls_of_function(tree, function)
                found += _at_each(function, [(c, function) for c in called])
        for owner, method in methods_of(tree):
            if _may_be_expression(method):
                found += _at_each(method, calls_of_method(tree, owner, method))
        return found


def _may_be_expression(function: ast.FunctionDef) -> bool:
    """Return whether a function has only statements of which some arguments leave an expression."""
    kinds = (ast.Assign, ast.Return, ast.If, ast.Expr)
    few = len(function.body) <= MOST and all(isinstance(s, kinds) for s in function.body)
    return few and any(isinstance(n, ast.Return) for n in ast.walk(function))


def _at_each(
    function: ast.FunctionDef, calls: Sequence[tuple[ast.Call, ast.FunctionDef]]
) -> Iterator[Rewrite]:
    values = [(call, specialised(as_called, call)) for call, as_called in calls]
    parts = [(call, (value,)) for call, value in values if value is not None]
    if parts and len(parts) == len(values):
        yield Rewrite(((function, ()), *parts))


def specialised(function: ast.FunctionDef, call: ast.Call) -> ast.expr | None:
    """Return a function as one expression with a call's arguments; None if it is more than that."""
    values = given_values(function.args, call.args, call.keywords)
    if values is None or function.decorator_list:
        return None
    known = {n: v for n, v in values.items() if isinstance(v, ast.Constant)}
    body = _decided([deepcopy(s) for s in function.body], known)
    found = _chained(body, {n: v for n, v in values.items() if n not in known})
    short = found is not None and len(ast.unparse(ast.fix_missing_locations(found))) <= LONGEST
    return found if short else None


def _decided(body: Sequence[ast.stmt], known: Mapping[str, ast.expr]) -> list[ast.stmt]:
    """Return the statements that run with these constants."""
    whole = ast.Module([Substituting(known).visit(s) for s in body], [])
    Folding().generic_visit(whole)
    plain = [s for s in whole.body if not _is_text(s)]
    ends = (n for n, s in enumerate(plain) if isinstance(s, ast.Return))
    return plain[: next(ends, len(plain)) + 1]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _chained(body: Sequence[ast.stmt], values: Mapping[str, ast.expr]) -> ast.expr | None:
    """Return the value that a sequence of assignments and a return ends with.

    None if there are other statements, or if a value other than a name would be read twice.
    """
    known = dict(values)
    for place, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                now = _with(value, known)
                if now is None:
                    return None
                used = _read(value)
                if any(_is_again(n, known, body[place + 1 :]) for n in used if n != name):
                    return None
                known[name] = now
            case ast.Return(value=ast.expr() as value):
                return _with(value, known)
            case _:
                return None
    return None


def _read(value: ast.expr) -> Counter[str]:
    return Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))


def _is_plain(value: ast.expr) -> bool:
    """Return whether a value is a name, an attribute of one, or a constant."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name | ast.Constant)


def _is_again(name: str, known: Mapping[str, ast.expr], later: Sequence[ast.stmt]) -> bool:
    """Return whether a value that was read once, and should not be read twice, is read later."""
    if name not in known or _is_plain(known[name]):
        return False
    for statement in later:
        nodes = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
        if any(is_read(n) for n in nodes):
            return True
        if nodes:
            return False
    return False


def _with(value: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr | None:
    """Return an expression with values in place of names; None if it reads a value twice."""
    read = _read(value)
    if any(read[n] > 1 and not _is_plain(v) for n, v in known.items()):
        return None
    found: ast.expr = Substituting(known).visit(deepcopy(value))
    return found
