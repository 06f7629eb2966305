"""Simplifies functions and classes: their parameters, decorators, bases, annotations and calls."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    FUNCTIONS,
    Rewrite,
    SyntaxReduction,
    statements,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
CALLED = ("forward", "__call__")
"""Methods that a call of an object runs."""


class InlineFunctions(SyntaxReduction):
    """Replaces the only call of a function by its body.

    The call is a statement or the value of an assignment, and the function returns only at its end.
    A function that is one expression replaces its only call anywhere.
    """

    name = "inline_functions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such function."""
        functions = {s.name: s for s in statements(tree) if isinstance(s, ast.FunctionDef)}
        uses = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
        found = []
        for statement in statements(tree):
            call = getattr(statement, "value", None)
            if not isinstance(statement, ast.Expr | ast.Assign | ast.Return):
                continue
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            function = functions.get(call.func.id)
            if function is None or uses[call.func.id] != 1 or function.decorator_list:
                continue
            body = _inlined(function, call, statement)
            if body is not None:
                found.append(Rewrite(((statement, body), (function, ()))))
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            function = functions.get(call.func.id)
            if function is None or uses[call.func.id] != 1 or function.decorator_list:
                continue
            value = _as_expression(function, call)
            if value is not None:
                found.append(Rewrite(((call, (value,)), (function, ()))))
        return found


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
    given = dict(zip(names, call.args, strict=True))
    read = Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
    if any(read[name] > 1 for name in names):
        return None
    substituted: ast.expr = _Substituting(given).visit(deepcopy(value))
    return substituted


class _Substituting(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._given.get(node.id, node)


def _inlined(
    function: ast.FunctionDef, call: ast.Call, statement: ast.Expr | ast.Assign | ast.Return
) -> list[ast.stmt] | None:
    """Return the statements that replace a call; None if the function cannot be inlined."""
    parameters = function.args
    if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs:
        return None
    given = dict(zip((a.arg for a in parameters.args), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    named = [a.arg for a in parameters.args]
    defaults = dict(zip(named[::-1], parameters.defaults[::-1], strict=False))
    values = defaults | given
    if set(values) != set(named) or len(call.args) > len(named):
        return None
    if any(isinstance(a, ast.Starred) for a in call.args) or len(call.keywords) > len(given):
        return None
    *before, last = function.body
    returned = [n for s in function.body for n in _own_returns(s)]
    if any(r is not last for r in returned):
        return None
    bindings = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in values.items()
        if not (isinstance(value, ast.Name) and value.id == name)
    ]
    if not isinstance(last, ast.Return):
        return [*bindings, *function.body]
    ending: list[ast.stmt] = []
    if last.value is not None:
        result = deepcopy(statement)
        result.value = last.value
        ending = [result]
    return [*bindings, *before, *ending]


def _own_returns(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the returns and yields of a function, without those of functions inside it."""
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal):
        yield node
    if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own_returns(child)


class DropParameters(SyntaxReduction):
    """Removes a parameter from a function, and its argument from the calls by name."""

    name = "drop_parameters"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each parameter."""
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        found = []
        for owner, function in _functions(tree, None):
            given = function.args
            names = [*given.posonlyargs, *given.args]
            of_object = owner is not None and not _is_static(function)
            for place, parameter in enumerate(names):
                if of_object and place == 0:
                    continue
                called = owner.name if owner and function.name == "__init__" else function.name
                parts = _arguments(calls, called, parameter.arg, place - of_object)
                default = place - (len(names) - len(given.defaults))
                defaults = [given.defaults[default]] if default >= 0 else []
                removed = [(node, ()) for node in (parameter, *defaults)]
                found.append(Rewrite((*removed, *parts)))
        return found


def _functions(
    node: ast.AST, owner: ast.ClassDef | None
) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """Yield the functions below a node with the class that each is a method of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield owner, child
        inner = child if isinstance(child, ast.ClassDef) else None
        yield from _functions(child, inner)


def _is_static(function: Function) -> bool:
    return any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)


def _arguments(
    calls: Sequence[ast.Call], called: str, parameter: str, place: int
) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    """Yield the removal of an argument from every call of a function."""
    for call in calls:
        function = call.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name != called:
            continue
        if place < len(call.args):
            yield call.args[place], ()
        for keyword in call.keywords:
            if keyword.arg == parameter:
                yield keyword, ()


class MethodsToFunctions(SyntaxReduction):
    """Replaces a class by its `forward` or `__call__`, if it has nothing else and uses no self."""

    name = "methods_to_functions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such class, with its objects."""
        found = []
        for owner in statements(tree):
            if not isinstance(owner, ast.ClassDef) or len(owner.body) != 1:
                continue
            (method,) = owner.body
            if not isinstance(method, ast.FunctionDef) or method.name not in CALLED:
                continue
            names = {n.id for s in method.body for n in ast.walk(s) if isinstance(n, ast.Name)}
            if not method.args.args or method.args.args[0].arg in names:
                continue
            function = deepcopy(method)
            function.name = owner.name
            del function.args.args[0]
            objects = [n for n in ast.walk(tree) if _makes(n, owner.name)]
            parts = [(n, (ast.Name(owner.name, ast.Load()),)) for n in objects]
            found.append(Rewrite(((owner, (function,)), *parts)))
        return found


def _makes(node: ast.AST, name: str) -> bool:
    """Return whether a node is a call of a class without arguments."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return False
    return isinstance(node.func, ast.Name) and node.func.id == name


class DropDecorations(SyntaxReduction):
    """Removes decorators, base classes, annotations and defaults."""

    name = "drop_decorations"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each."""
        found = []
        for node in ast.walk(tree):
            if isinstance(node, DEFINITIONS):
                found += [Rewrite.of(decorator) for decorator in node.decorator_list]
            if isinstance(node, FUNCTIONS) and node.returns is not None:
                found.append(Rewrite.of(node.returns))
            if isinstance(node, ast.ClassDef):
                found += [Rewrite.of(base) for base in node.bases]
            if isinstance(node, ast.arg) and node.annotation is not None:
                found.append(Rewrite.of(node.annotation))
            if isinstance(node, ast.AnnAssign) and node.value is not None and node.simple:
                found.append(Rewrite.of(node, ast.Assign([node.target], node.value)))
        return found
