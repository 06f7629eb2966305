"""Dataclasses and named tuples as plain classes with the `__init__` that they get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy

from tcdebug.minifier.reduction.script.inlining import given_values, substituted
from tcdebug.minifier.reduction.script.rewriting import (
    Rewrite,
    SyntaxReduction,
    expressions,
    last_name,
    statements,
)


def with_init(owner: ast.ClassDef) -> ast.ClassDef:
    """Return a dataclass or a named tuple with a written `__init__`; other classes as they are."""
    if not _is_record(owner):
        return owner
    fields = [s for s in owner.body if isinstance(s, ast.AnnAssign)]
    names = [s.target.id for s in fields if isinstance(s.target, ast.Name)]
    defaults = [_default(s.value) for s in fields if s.value is not None]
    me = ast.Name("self", ast.Load())
    body: list[ast.stmt] = [
        ast.Assign([ast.Attribute(me, n, ast.Store())], ast.Name(n, ast.Load())) for n in names
    ]
    args = ast.arguments([], [ast.arg(n) for n in ("self", *names)], None, [], [], None, defaults)
    init = ast.FunctionDef("__init__", args, body or [ast.Pass()], [])
    plain = deepcopy(owner)
    plain.bases, plain.decorator_list = [], []
    others = (s for s in plain.body if not isinstance(s, ast.AnnAssign))
    plain.body = [init, *others]
    return plain


def _is_record(owner: ast.ClassDef) -> bool:
    match owner:
        case ast.ClassDef(bases=[], decorator_list=[ast.Call(func=decorator)]):
            return last_name(decorator) == "dataclass"
        case ast.ClassDef(bases=[], decorator_list=[decorator]):
            return last_name(decorator) == "dataclass"
        case ast.ClassDef(bases=[base], decorator_list=[]):
            return last_name(base) == "NamedTuple"
    return False


def _default(value: ast.expr) -> ast.expr:
    """Return the default of a field: the value, or what its factory makes."""
    if isinstance(value, ast.Call) and last_name(value.func) == "field":
        for keyword in value.keywords:
            if keyword.arg == "default":
                return keyword.value
            if keyword.arg == "default_factory":
                return ast.Call(keyword.value, [], [])
    return value


class AttributesOfNewObjects(SyntaxReduction):
    """Replaces an attribute of an object that is created there by what it is set to.

    `Box(v).value` becomes `v`, if `__init__` sets it to its argument.
    """

    name = "attributes_of_new_objects"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such attribute."""
        classes = {s.name: with_init(s) for s in statements(tree) if isinstance(s, ast.ClassDef)}
        found = []
        for node in expressions(tree):
            match node:
                case ast.Attribute(value=ast.Call(func=ast.Name(id=name)) as call, attr=attr):
                    owner = classes.get(name)
                    values = () if owner is None else _set_to(owner, call, attr)
                    found += [Rewrite.of(node, value) for value in values]
        return found


def _set_to(owner: ast.ClassDef, call: ast.Call, attr: str) -> Iterator[ast.expr]:
    """Yield what `__init__` sets an attribute to in a call."""
    for method in owner.body:
        match method:
            case ast.FunctionDef(name="__init__", args=ast.arguments(args=[me, *_])):
                parameters = deepcopy(method.args)
                del parameters.args[0]
                given = given_values(parameters, call.args, call.keywords)
            case _:
                continue
        for statement in method.body:
            match statement:
                case ast.Assign([ast.Attribute(ast.Name(id=own), name)], value):
                    if own == me.arg and name == attr and given is not None:
                        made = substituted(value, given)
                        if made is not None:
                            yield made
