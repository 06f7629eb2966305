"""Simplifies functions and classes: their parameters, decorators, bases and annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    FUNCTIONS,
    PREDEFINED,
    Rewrite,
    SyntaxReduction,
    statements,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
CALLED = ("forward", "__call__")
"""Methods that a call of an object runs."""


class DropParameters(SyntaxReduction):
    """Removes a parameter from a function, and its argument from the calls by name.

    A call of what another function made of it counts too, such as `torch.compile(f)(x)`.
    Of methods that calls of objects run, the parameters at one place go together, with the
    arguments there of all calls of something that the script neither defines nor imports.
    """

    name = "drop_parameters"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each parameter."""
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        wrapped = dict(wrapped_functions(tree))
        found = []
        for owner, function in defined_functions(tree):
            given = function.args
            names = [*given.posonlyargs, *given.args]
            of_object = owner is not None and not is_static(function)
            for place, parameter in enumerate(names):
                if of_object and place == 0:
                    continue
                called = owner.name if owner and function.name == "__init__" else function.name
                reached = [c for c in calls if reaches(c.func, called, wrapped)]
                parts = _arguments(reached, parameter.arg, place - of_object)
                default = place - (len(names) - len(given.defaults))
                defaults = [given.defaults[default]] if default >= 0 else []
                removed = [(node, ()) for node in (parameter, *defaults)]
                found.append(Rewrite((*removed, *parts)))
        return [*found, *_of_objects(tree, calls), *_of_lambdas(calls)]


def wrapped_functions(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield the names that are bound to the result of a call, with the names that it was given."""
    for statement in statements(tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=given)):
                yield name, {a.id for a in given if isinstance(a, ast.Name)}


def reaches(called: ast.expr, name: str, wrapped: Mapping[str, set[str]]) -> bool:
    """Return whether a call may run the function of a name."""
    match called:
        case ast.Name(id=own):
            return own == name or name in wrapped.get(own, ())
        case ast.Attribute(attr=attr):
            return attr == name
        case ast.Call(args=given):
            return any(isinstance(a, ast.Name) and reaches(a, name, wrapped) for a in given)
    return False


def _of_lambdas(calls: Sequence[ast.Call]) -> Iterator[Rewrite]:
    """Yield the edits that drop a parameter of a lambda that is wrapped and called at once."""
    for call in calls:
        match call.func:
            case ast.Call(args=[ast.Lambda(args=given), *_]) if not given.defaults:
                for parameter, argument in zip(given.args, call.args, strict=False):
                    yield Rewrite(((parameter, ()), (argument, ())))


def _of_objects(tree: ast.Module, calls: Sequence[ast.Call]) -> list[Rewrite]:
    """Return the edits that drop a parameter of all methods that calls of objects run."""
    given = [f.args for owner, f in defined_functions(tree) if owner and f.name in CALLED]
    named = {s.name for s in statements(tree) if isinstance(s, DEFINITIONS)}
    named |= {_bound(n) for n in ast.walk(tree) if isinstance(n, ast.alias)}
    objects = [c for c in calls if not _is_method_of(c.func, named)]
    found = []
    for place in range(max((len(g.args) for g in given), default=1) - 1, 0, -1):
        parameters = [g.args[place] for g in given if len(g.args) > place and not g.defaults]
        arguments = [c.args[place - 1] for c in objects if len(c.args) >= place]
        if parameters and arguments:
            found.append(Rewrite(tuple((node, ()) for node in (*parameters, *arguments))))
    return found


def _bound(alias: ast.alias) -> str:
    return (alias.asname or alias.name).partition(".")[0]


def _is_method_of(called: ast.expr, named: set[str]) -> bool:
    """Return whether an expression begins with one of some names, or with a builtin."""
    while isinstance(called, ast.Attribute | ast.Call):
        called = called.func if isinstance(called, ast.Call) else called.value
    return not isinstance(called, ast.Name) or called.id in named or called.id in PREDEFINED


def defined_functions(
    node: ast.AST, owner: ast.ClassDef | None = None
) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """Yield the functions below a node with the class that each is a method of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield owner, child
        inner = child if isinstance(child, ast.ClassDef) else None
        yield from defined_functions(child, inner)


def is_static(function: Function) -> bool:
    """Return whether a method takes no object."""
    return any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)


def _arguments(
    calls: Sequence[ast.Call], parameter: str, place: int
) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    """Yield the removal of an argument from calls."""
    for call in calls:
        if place < len(call.args):
            yield call.args[place], ()
        for keyword in call.keywords:
            if keyword.arg == parameter:
                yield keyword, ()


class DropResults(SyntaxReduction):
    """Removes one of several results of a function, and what takes it where the call is unpacked.

    What a generator yields counts as its results, unpacked by the loop over the call.
    """

    name = "drop_results"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each place of results that are always written as tuples."""
        wrapped = dict(wrapped_functions(tree))
        unpacked = list(_unpacked_calls(tree))
        found = []
        for owner, function in defined_functions(tree):
            given = _given_results(function)
            if not given or len({len(t.elts) for t in given}) != 1:
                continue
            count = len(given[0].elts)
            called = function.name
            taken = [
                target
                for target, call in unpacked
                if len(target.elts) == count
                and (reaches(call.func, called, wrapped) or (owner and called in CALLED))
            ]
            for place in range(count if count > 1 else 0):
                parts = [_without(t, place) for t in (*given, *taken)]
                found.append(Rewrite(tuple(parts)))
        return found


def _unpacked_calls(tree: ast.Module) -> Iterator[tuple[ast.Tuple, ast.Call]]:
    """Yield the targets that the results of calls are unpacked to, with the calls."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Tuple() as target], value=ast.Call() as call)
                | ast.For(target=ast.Tuple() as target, iter=ast.Call() as call)
                | ast.comprehension(target=ast.Tuple() as target, iter=ast.Call() as call)
            ):
                yield target, call


def _given_results(function: Function) -> list[ast.Tuple]:
    """Return the tuples that a function returns or yields; nothing if it gives anything else."""
    found = []
    for node in _own_nodes(function):
        match node:
            case ast.Return(value=ast.Tuple() as given) | ast.Yield(value=ast.Tuple() as given):
                found.append(given)
            case ast.Return(value=None):
                pass
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                return []
    starred = any(isinstance(e, ast.Starred) for t in found for e in t.elts)
    return [] if starred else found


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, except those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.Lambda)):
            yield child
            yield from _own_nodes(child)


def _without(elements: ast.Tuple, place: int) -> tuple[ast.AST, Sequence[ast.AST]]:
    """Return the removal of an element from a tuple. Of two elements, the other one remains."""
    if len(elements.elts) == 2:
        return elements, (elements.elts[1 - place],)
    return elements.elts[place], ()


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
