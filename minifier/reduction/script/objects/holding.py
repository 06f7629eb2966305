"""Takes objects apart that other objects hold: their calls, and then their attributes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.functions import CALLED
from tcdebug.minifier.reduction.script.inlining import (
    FEW,
    as_expression,
    assignments,
    at_all_calls,
    calls_of_statements,
    given_values,
    in_place,
    inlined_body,
    of_object,
)
from tcdebug.minifier.reduction.script.objects.dissolving import without_module
from tcdebug.minifier.reduction.script.objects.records import with_init
from tcdebug.minifier.reduction.script.rewriting import Rewrite, SyntaxReduction, statements


class InlineForwards(SyntaxReduction):
    """Replaces the calls of an object that another one holds by what they run.

    With `self.layer = Layer()`, `self.layer(x)` becomes the body of `Layer.forward`, with
    `self.layer` in place of `self`. A body of several statements replaces the only call.
    """

    name = "inline_forwards"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each object that is held under a name of its own."""
        found = []
        for _, attr, owner, _ in _held(tree):
            method = _run_by_calls(owner)
            if method is None:
                continue
            nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
            calls = [n for n in nodes if _calls_attribute(n, attr)]
            values = [(c, as_expression(of_object(method, c.func), c)) for c in calls]
            everywhere = [*at_all_calls(method, values)] if len(calls) <= FEW else []
            found += everywhere
            if not everywhere and len(calls) == 1:
                for statement, call in calls_of_statements(tree):
                    if call is calls[0]:
                        inlined = inlined_body(of_object(method, call.func), call.args, call)
                        found += [in_place(statement, call, method, inlined)] if inlined else []
        return found


class FlattenObjects(SyntaxReduction):
    """Moves the attributes of an object that another one holds to that one.

    `self.layer = Layer(8)` becomes what `Layer.__init__` does, and `self.layer.weight` becomes
    `self.weight`. The class has nothing but `__init__`, and only this object.
    """

    name = "flatten_objects"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such object."""
        found: list[Rewrite] = []
        for statement, attr, definition, call in _held(tree):
            owner = without_module(with_init(definition))
            match owner.body:
                case [ast.FunctionDef(name="__init__", decorator_list=[]) as begins]:
                    found += _flattened(tree, statement, attr, definition, begins, call)
        return found


def _held(tree: ast.Module) -> Iterator[tuple[ast.Assign, str, ast.ClassDef, ast.Call]]:
    """Yield where an attribute is set to the only object of a class, and that class."""
    classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
    made = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
    stored = Counter(
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)
    )
    for statement in statements(tree):
        match statement:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(), attr=attr)],
                value=ast.Call(func=ast.Name(id=name)) as call,
            ):
                if name in classes and made[name] == 1 == stored[attr]:
                    yield statement, attr, classes[name], call


def _run_by_calls(owner: ast.ClassDef) -> ast.FunctionDef | None:
    """Return the only method that a call of an object runs, if it needs nothing but attributes."""
    methods = [s for s in owner.body if isinstance(s, ast.FunctionDef) and s.name in CALLED]
    if len(methods) != 1 or methods[0].decorator_list or not methods[0].args.args:
        return None
    names = {n.id for n in ast.walk(methods[0]) if isinstance(n, ast.Name)}
    return None if "super" in names else methods[0]


def _calls_attribute(call: ast.Call, attr: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == attr


def _flattened(
    tree: ast.Module,
    statement: ast.Assign,
    attr: str,
    definition: ast.ClassDef,
    begins: ast.FunctionDef,
    call: ast.Call,
) -> Iterator[Rewrite]:
    """Yield the edit that moves the attributes of an object."""
    holder = statement.targets[0]
    assert isinstance(holder, ast.Attribute)
    function = deepcopy(begins)
    me = function.args.args.pop(0).arg
    values = given_values(function.args, call.args, call.keywords)
    inner = [n for n in ast.walk(begins) if isinstance(n, ast.Attribute) and _is(n.value, me)]
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == attr]
    read = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.value in uses]
    own = {n.attr for n in inner if isinstance(n.ctx, ast.Store)}
    if values is None or len(read) + 1 != len(uses) or not {n.attr for n in read} <= own:
        return
    if sum(_is(n, me) for n in ast.walk(begins)) != len(inner):
        return
    others = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} - {attr}
    outside = Counter(n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    outside.subtract(n.attr for n in (*inner, *read))
    named = {n: n if n not in others or outside[n] == 0 else f"{attr}_{n}" for n in own}
    bound = assignments(values)
    moving = _Moving(me, holder.value, named)
    body = [moving.visit(s) for s in function.body]
    parts: list[tuple[ast.AST, Sequence[ast.AST]]] = []
    for node in read:
        place = node.value
        assert isinstance(place, ast.Attribute)
        parts.append((node, (ast.Attribute(place.value, named[node.attr], node.ctx),)))
    yield Rewrite(((definition, ()), (statement, (*bound, *body)), *parts))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class _Moving(ast.NodeTransformer):
    """Replaces attributes of one object by attributes of another."""

    def __init__(self, me: str, holder: ast.expr, named: Mapping[str, str]) -> None:
        self._me = me
        self._holder = holder
        self._named = named

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if _is(node.value, self._me):
            name = self._named.get(node.attr, node.attr)
            return ast.Attribute(deepcopy(self._holder), name, node.ctx)
        self.generic_visit(node)
        return node
