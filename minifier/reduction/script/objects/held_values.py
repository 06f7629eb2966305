"""Replaces objects that only hold a value by that value."""

from __future__ import annotations

import ast
from collections import Counter
from copy import deepcopy

from tcdebug.minifier.reduction.script.functions import CALLED
from tcdebug.minifier.reduction.script.inlining import given_values, substituted
from tcdebug.minifier.reduction.script.rewriting import Rewrite, SyntaxReduction, statements


class ObjectsToValues(SyntaxReduction):
    """Replaces an object by its only attribute: `Box(v)` by `v`, and `box.value` by `box`.

    The class has nothing but the `__init__` that sets the attribute, which no other statement sets,
    and at most a `forward` or `__call__` that passes its arguments on to the attribute.
    """

    name = "objects_to_values"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such class, with its objects."""
        nodes = list(ast.walk(tree))
        uses = Counter(n.id for n in nodes if isinstance(n, ast.Name))
        attributes = [n for n in nodes if isinstance(n, ast.Attribute)]
        stored = Counter(a.attr for a in attributes if not isinstance(a.ctx, ast.Load))
        found = []
        for owner in statements(tree):
            held = _held(owner) if isinstance(owner, ast.ClassDef) else None
            if held is None or stored[held[1]] != 1:
                continue
            assert isinstance(owner, ast.ClassDef)
            parameters, attribute, value = held
            made = [n for n in nodes if _makes(n, owner.name)]
            if not made or uses[owner.name] != len(made):
                continue
            objects = [_object(call, parameters, value) for call in made]
            own = {id(n) for n in ast.walk(owner)}
            reads = [a for a in attributes if a.attr == attribute and id(a) not in own]
            if all(o is not None for o in objects):
                parts = [(c, (o,)) for c, o in zip(made, objects, strict=True) if o is not None]
                found.append(Rewrite(((owner, ()), *parts, *((a, (a.value,)) for a in reads))))
        return found


def _makes(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _object(call: ast.AST, parameters: ast.arguments, value: ast.expr) -> ast.expr | None:
    """Return the value that an object holds which a call makes."""
    assert isinstance(call, ast.Call)
    given = given_values(parameters, call.args, call.keywords)
    return None if given is None else substituted(value, given)


def _held(owner: ast.ClassDef) -> tuple[ast.arguments, str, ast.expr] | None:
    """Return the parameters of a class, its only attribute and what that is set to."""
    first, *rest = owner.body
    if not isinstance(first, ast.FunctionDef) or first.name != "__init__" or first.decorator_list:
        return None
    body = [s for s in first.body if ast.unparse(s) != "super().__init__()"]
    match body, first.args.args:
        case [ast.Assign([ast.Attribute(ast.Name(id=own), attribute)], value)], [me, *_]:
            if own != me.arg:
                return None
        case _:
            return None
    if not all(_passes_on(method, attribute) for method in rest):
        return None
    parameters = deepcopy(first.args)
    del parameters.args[0]
    return parameters, attribute, value


def _passes_on(method: ast.stmt, attribute: str) -> bool:
    """Return whether a method only calls an attribute with its own arguments."""
    match method:
        case ast.FunctionDef(args=ast.arguments(args=[me, *given]), body=[ast.Return(value)]):
            call = ast.Call(
                ast.Attribute(ast.Name(me.arg, ast.Load()), attribute, ast.Load()),
                [ast.Name(a.arg, ast.Load()) for a in given],
                [],
            )
            same = value is not None and ast.unparse(value) == ast.unparse(call)
            return same and method.name in CALLED and not method.decorator_list
    return False
