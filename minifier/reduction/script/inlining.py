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
FEW = 4
"""A function of one expression replaces up to this many calls."""
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
        for statement, call in calls_of_statements(tree):
            function = called(call)
            if function is not None and (inlined := inlined_body(function, call.args, call)):
                found.append(in_place(statement, call, function, inlined))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (function := called(node)) is not None:
                value = as_expression(function, node)
                if value is not None:
                    found.append(Rewrite(((node, (value,)), (function, ()))))
        for name, function in functions.items():
            if 1 < uses[name] <= FEW and not function.decorator_list:
                calls = calls_of_function(tree, function)
                values = [(call, as_expression(function, call)) for call in calls]
                found += at_all_calls(function, values)
        return found


def calls_of_function(tree: ast.Module, function: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls of a function; none if there are many, or if it is used otherwise."""
    name = function.name
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    found = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == name]
    return found if len(found) == len(uses) <= FEW else []


def at_all_calls(
    function: ast.FunctionDef, values: Sequence[tuple[ast.Call, ast.expr | None]]
) -> Iterator[Rewrite]:
    """Yield the edit that replaces all calls of a function, unless one of them has no value."""
    parts = [(call, (value,)) for call, value in values if value is not None]
    if parts and len(parts) == len(values):
        yield Rewrite(((function, ()), *parts))


class InlineMethods(SyntaxReduction):
    """Replaces the only call of a method by its body, with the object in place of `self`.

    No other attribute has the method's name, and the object is a name or an attribute of one.
    """

    name = "inline_methods"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such method."""
        uses = Counter(n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))
        for _, own in methods_of(tree):
            uses[own.name] -= sum(_is_of_other(n, own) for n in ast.walk(own))
        defined = Counter(m.name for _, m in methods_of(tree))
        single = [(o, m) for o, m in methods_of(tree) if defined[m.name] == 1]
        methods = {m.name: (o, m) for o, m in single if uses[m.name] == 1}
        found = []
        for statement, call in calls_of_statements(tree):
            if not isinstance(call.func, ast.Attribute):
                continue
            owner, method = methods.get(call.func.attr, (None, None))
            if owner is None or method is None or any(n is call for n in ast.walk(method)):
                continue
            function = _as_function(owner, method, call.func.value)
            inlined = function and inlined_body(function, call.args, call)
            if inlined:
                found.append(in_place(statement, call, method, inlined))
        for owner, method in single:
            if uses[method.name] <= FEW:
                found += _of_method(tree, owner, method)
        return found


def _is_of_other(node: ast.AST, method: ast.FunctionDef) -> bool:
    """Return whether a method uses an attribute of its own name, of another object."""
    if not isinstance(node, ast.Attribute) or node.attr != method.name:
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == _first_parameter(method))


def _first_parameter(method: ast.FunctionDef) -> str:
    return method.args.args[0].arg if method.args.args else ""


def _of_method(tree: ast.Module, owner: ast.ClassDef, method: ast.FunctionDef) -> Iterator[Rewrite]:
    """Yield the edit that replaces all calls of a method of one expression."""
    calls = calls_of_method(tree, owner, method)
    yield from at_all_calls(method, [(call, as_expression(f, call)) for call, f in calls])


def calls_of_method(
    tree: ast.Module, owner: ast.ClassDef, method: ast.FunctionDef
) -> list[tuple[ast.Call, ast.FunctionDef]]:
    """Return the calls of a method, each with the method as a function of its object.

    There are none if it is used otherwise, often, or with an object that is not written there.
    """
    inside = {id(n) for n in ast.walk(method) if _is_of_other(n, method)}
    named = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == method.name]
    places = [n for n in named if id(n) not in inside]
    calls = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
    found = []
    for place in places if len(places) <= FEW else ():
        call = calls.get(id(place))
        function = None if call is None else _as_function(owner, method, place.value)
        if call is None or function is None:
            return []
        found.append((call, function))
    return found


def _as_function(
    owner: ast.ClassDef, method: ast.FunctionDef, place: ast.expr
) -> ast.FunctionDef | None:
    """Return a method as a function, called on an object or, if it is static, on its class."""
    of_class = isinstance(place, ast.Name) and place.id == owner.name
    match method.decorator_list:
        case [] if method.args.args and not of_class:
            written = _is_place(place) or (_is_new(place, owner) and not _uses_object(method))
            return of_object(method, place) if written else None
        case [ast.Name("classmethod")] if method.args.args and of_class:
            return of_object(method, place)
        case [ast.Name("staticmethod")] if of_class:
            return method
    return None


def methods_of(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Yield the methods of a script, each with its class."""
    for owner in statements(tree):
        if isinstance(owner, ast.ClassDef):
            yield from ((owner, m) for m in owner.body if isinstance(m, ast.FunctionDef))


def _is_place(node: ast.expr) -> bool:
    """Return whether an expression is a name, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_new(node: ast.expr, owner: ast.ClassDef) -> bool:
    """Return whether an expression creates an object of a class without arguments."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name == owner.name
    return False


def _uses_object(method: ast.FunctionDef) -> bool:
    me = method.args.args[0].arg
    return any(isinstance(n, ast.Name) and n.id == me for n in ast.walk(method))


def of_object(method: ast.FunctionDef, owner: ast.expr) -> ast.FunctionDef:
    """Return a method as a function that reads its object from an expression."""
    function = deepcopy(method)
    own = function.args.args.pop(0).arg
    substituting = Substituting({own: owner})
    function.body = [substituting.visit(s) for s in function.body]
    return function


def calls_of_statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """Yield the calls of each statement before which other statements may be put."""
    for statement in statements(tree):
        if not isinstance(statement, RUN_OTHERWISE):
            yield from ((statement, n) for n in own_parts(statement) if isinstance(n, ast.Call))


def in_place(
    statement: ast.stmt, call: ast.Call, function: ast.FunctionDef, inlined: Inlined
) -> Rewrite:
    """Return the edit that puts a function's body before a statement and its value in place."""
    before, value = inlined
    whole = getattr(statement, "value", None) is call
    if value is None and whole:
        return Rewrite(((statement, before), (function, ())))
    given = ast.Constant(None) if value is None else value
    return Rewrite(((statement, (*before, statement)), (call, (given,)), (function, ())))


def inlined_body(
    function: ast.FunctionDef, args: Sequence[ast.expr], call: ast.Call
) -> Inlined | None:
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


def assignments(values: Mapping[str, ast.expr]) -> list[ast.stmt]:
    """Return statements that bind names to values."""
    return [ast.Assign([ast.Name(n, ast.Store())], v) for n, v in values.items()]


def given_values(
    parameters: ast.arguments, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> dict[str, ast.expr] | None:
    """Return the value of each parameter in a call; None if that is not written there."""
    if parameters.vararg or parameters.kwonlyargs or parameters.posonlyargs:
        return None
    named = [a.arg for a in parameters.args]
    if any(isinstance(a, ast.Starred) for a in args) or len(args) > len(named):
        return None
    if parameters.kwarg is not None:
        others = [k for k in keywords if k.arg not in named]
        keywords = [k for k in keywords if k.arg in named]
        plain = ast.arguments([], parameters.args, None, [], [], None, parameters.defaults)
        values = given_values(plain, args, keywords)
        made = ast.Call(ast.Name("dict", ast.Load()), [], others)
        return None if values is None else {**values, parameters.kwarg.arg: made}
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


def as_expression(function: ast.FunctionDef, call: ast.Call) -> ast.expr | None:
    """Return a function of one expression with a call's arguments; None for other functions.

    `yield from x` as the whole body counts as the expression `x`. A parameter may be read more than
    once only if its argument is a name or a constant.
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
    """Return an expression with names replaced; None if it would evaluate a value twice."""
    read = Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
    if any(read[n] > 1 and not isinstance(v, ast.Name | ast.Constant) for n, v in given.items()):
        return None
    found: ast.expr = Substituting(given).visit(deepcopy(value))
    return found


class Substituting(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._given.get(node.id, node)
