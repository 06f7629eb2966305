"""Replaces an object by one of its components, and a container by its only element."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from copy import deepcopy

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.inlining import Substituting, given_values
from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    expressions,
    last_name,
    statements,
)
from tcdebug.minifier.reduction.script.scopes import blocks_of, is_read

CONTAINERS = ("ModuleList", "Sequential")
"""Classes of torch.nn whose objects hold what they are given."""


class HoistComponents(SyntaxReduction):
    """Replaces an object that is created by one that its class creates for it.

    So `Model(8)` becomes the `Linear(8, 8)` that the `__init__` of `Model` makes. Definitions that
    nothing reads any more are removed.
    """

    name = "hoist_components"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each object and component."""
        classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
        return [
            Rewrite.of(node, component)
            for node in expressions(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if node.func.id in classes
            for component in _components(classes[node.func.id], node)
        ]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script with these edits and without unused definitions."""
        made = super().apply(script, edits)
        return None if made is None else made.with_text(without_unused(made.text))


def _components(owner: ast.ClassDef, creation: ast.Call) -> Iterator[ast.expr]:
    """Yield the objects that a class creates, with the arguments of a creation in their place."""
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        parameters = deepcopy(method.args)
        own = {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)}
        del parameters.args[:1]
        values = given_values(parameters, creation.args, creation.keywords) or {}
        own |= {
            n.id for n in ast.walk(method) if isinstance(n, ast.Name) and not is_read(n)
        } - values.keys()
        seen = set()
        for node in ast.walk(method):
            if isinstance(node, ast.Call) and _is_class(node.func):
                made = Substituting(values).visit(deepcopy(_sequential(node)))
                names = [n for n in ast.walk(made) if isinstance(n, ast.Name)]
                free = {n.id for n in names} - {n.id for n in names if not is_read(n)}
                text = ast.unparse(made)
                if not free & (own - values.keys()) and text not in seen:
                    seen.add(text)
                    yield made


def _is_class(called: ast.expr) -> bool:
    """Return whether a call creates an object, to judge by the name of what is called."""
    return last_name(called)[:1].isupper()


def _sequential(call: ast.Call) -> ast.Call:
    """Return a list of modules as one that calls them one after another; other calls as they are.

    So a model that is nothing but a list of layers becomes this list.
    """
    match call:
        case ast.Call(func=called, args=[modules], keywords=[]) if (
            last_name(called) == "ModuleList"
        ):
            name: ast.expr = ast.Name("Sequential", ast.Load())
            if isinstance(called, ast.Attribute):
                name = ast.Attribute(called.value, "Sequential", ast.Load())
            if isinstance(modules, ast.List | ast.Tuple):
                return ast.Call(name, modules.elts, [])
            return ast.Call(name, [ast.Starred(modules, ast.Load())], [])
    return call


def without_unused(text: str) -> str:
    """Return a script without the functions and classes that no other statement reads."""
    tree = ast.parse(text)
    while True:
        unused = [s for s in tree.body if isinstance(s, DEFINITIONS) and not _is_used(s, tree)]
        if not unused:
            return ast.unparse(tree)
        tree.body = [s for s in tree.body if s not in unused]


def _is_used(definition: ast.stmt, tree: ast.Module) -> bool:
    assert isinstance(definition, DEFINITIONS)
    if definition.decorator_list:
        return True
    others = (s for s in tree.body if s is not definition)
    names = (n for s in others for n in ast.walk(s) if isinstance(n, ast.Name))
    return any(name.id == definition.name for name in names)


class UnwrapContainers(SyntaxReduction):
    """Replaces a container with one element by the element, together with what looks it up.

    `blocks = [Block()]` becomes `blocks = Block()`, and `blocks[0]` and `next(iter(blocks))` become
    `blocks`. The container is the value of a name or an attribute that is bound once.
    """

    name = "unwrap_containers"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such container that is looked up."""
        found = []
        places = [n for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute)]
        stored = [last_name(n) for n in places if not isinstance(n.ctx, ast.Load)]
        looked_up = [n for n in expressions(tree) if _first_of(n) is not None]
        for statement in statements(tree):
            match statement:
                case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                    element = _only_element(value)
                case _:
                    continue
            if element is None or stored.count(last_name(target)) != 1:
                continue
            uses = [(n, _first_of(n)) for n in looked_up]
            parts = [(n, (of,)) for n, of in uses if of and last_name(of) == last_name(target)]
            if parts:
                found.append(Rewrite(((value, (element,)), *parts)))
        filled = (edit for s in statements(tree) for edit in _filled_once(s, tree))
        return [*found, *filled, *_filled_at_once(tree)]


def _filled_once(statement: ast.stmt, tree: ast.Module) -> Iterator[Rewrite]:
    """Yield the edit that makes a list to which one value is appended a name of this value."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])):
            pass
        case _:
            return
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    looked_up = [n for n in expressions(tree) if _is_element(n, name)]
    for other in statements(tree):
        match other:
            case ast.Expr(
                ast.Call(func=ast.Attribute(ast.Name(id=of), "append"), args=[value], keywords=[])
            ) if of == name and len(uses) == len(looked_up) + 2:
                bound = ast.Assign([ast.Name(name, ast.Store())], value)
                read = [(n, (ast.Name(name, ast.Load()),)) for n in looked_up]
                yield Rewrite(((statement, ()), (other, (bound,)), *read))


def _filled_at_once(tree: ast.Module) -> Iterator[Rewrite]:
    """Yield, for each list to which the next statement appends a value, that list with it."""
    for block in blocks_of(tree):
        for first, second in itertools.pairwise(block):
            match first, second:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)),
                    ast.Expr(ast.Call(func=ast.Attribute(ast.Name(id=of), "append"), args=[value])),
                ) if name == of:
                    longer = ast.List([*elements, value], ast.Load())
                    yield Rewrite(((second, ()), (first.value, (longer,))))


def _is_element(node: ast.expr, name: str) -> bool:
    """Return whether an expression is the first or the last element of a list."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=of), slice=ast.Constant(0) | ast.UnaryOp(ast.USub(), ast.Constant(1))
        ):
            return of == name
    return False


def _only_element(value: ast.expr) -> ast.expr | None:
    """Return the only element of a display or of a container of modules."""
    match value:
        case ast.List(elts=[element]) | ast.Tuple(elts=[element]):
            return None if isinstance(element, ast.Starred) else element
        case ast.Call(func=called, args=[element], keywords=[]) if last_name(called) in CONTAINERS:
            return _only_element(element) or element
    return None


def _first_of(node: ast.expr) -> ast.expr | None:
    """Return the name or attribute whose first element an expression looks up."""
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(value=0)):
            pass
        case ast.Call(
            func=ast.Name("next"), args=[ast.Call(func=ast.Name("iter"), args=[of])], keywords=[]
        ):
            pass
        case _:
            return None
    return of if isinstance(of, ast.Name | ast.Attribute) else None
