"""Takes objects apart: their attributes become variables, their methods functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.functions import CALLED
from tcdebug.minifier.reduction.script.inlining import assignments, given_values
from tcdebug.minifier.reduction.script.objects.records import with_init
from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    PREDEFINED,
    Rewrite,
    SyntaxReduction,
    last_name,
    statements,
)


class DissolveObjects(SyntaxReduction):
    """Replaces the only object of a class by variables and functions.

    The class has no bases but `Module`, and no decorators or special methods but `__init__` and
    what calls run. The object is the value of a variable of the module. Either nothing but
    attributes is used of it, or the variable becomes the function that a call of the object runs.
    """

    name = "dissolve_objects"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such object."""
        defined = [s for s in tree.body if isinstance(s, ast.ClassDef)]
        plain = [(s, without_module(with_init(s))) for s in defined]
        classes = {s.name: (s, p) for s, p in plain if _is_plain(p)}
        names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
        found = []
        for statement in tree.body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made)) as call
                ) if made in classes:
                    pass
                case _:
                    continue
            if sum(n.id == made for n in names) != 1:
                continue
            uses = list(_attributes(tree, name))
            reads = sum(n.id == name and isinstance(n.ctx, ast.Load) for n in names)
            stored = sum(n.id == name for n in names) - reads
            if stored == 1 and (reads == len(uses) or _called(classes[made][1])):
                edit = _dissolved(tree, statement, *classes[made], call, uses)
                found += [edit] if edit else []
        return found


def without_module(owner: ast.ClassDef) -> ast.ClassDef:
    """Return a class of modules as a class without a base."""
    if [last_name(b) for b in owner.bases] != ["Module"]:
        return owner
    plain = deepcopy(owner)
    plain.bases = []
    for method in plain.body:
        if isinstance(method, ast.FunctionDef):
            body = [s for s in method.body if not ast.unparse(s).startswith("super(")]
            method.body = body or [ast.Pass()]
    return plain


def _called(owner: ast.ClassDef) -> str:
    """Return the only method that a call of an object runs; empty if there is none, or several."""
    names = [s.name for s in owner.body if isinstance(s, ast.FunctionDef) and s.name in CALLED]
    return names[0] if len(names) == 1 else ""


def _is_plain(owner: ast.ClassDef) -> bool:
    if owner.bases or owner.keywords or owner.decorator_list:
        return False
    for part in owner.body:
        match part:
            case ast.FunctionDef(name=name, decorator_list=[], args=given):
                special = name.startswith("__") and name not in ("__init__", *CALLED)
                if special or not given.args or not _only_attributes(part, given.args[0].arg):
                    return False
            case ast.Assign(targets=[ast.Name()]) | ast.Pass():
                pass
            case _:
                return False
    return True


def _only_attributes(method: ast.FunctionDef, me: str) -> bool:
    """Return whether a method uses nothing of its object but attributes."""
    names = sum(isinstance(n, ast.Name) and n.id in (me, "super") for n in ast.walk(method))
    return names == len(list(_attributes(method, me)))


def _attributes(tree: ast.AST, name: str) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=of)) if of == name:
                yield node


def _dissolved(
    tree: ast.Module,
    statement: ast.stmt,
    definition: ast.ClassDef,
    owner: ast.ClassDef,
    call: ast.Call,
    uses: Sequence[ast.Attribute],
) -> Rewrite | None:
    methods = [s for s in owner.body if isinstance(s, ast.FunctionDef)]
    parts = {m.name for m in methods if m.name != "__init__"}
    if not _called(owner) and parts & {*CALLED}:
        return None
    parts |= {_variable(s) for s in owner.body if isinstance(s, ast.Assign)}
    own = [a for m in methods for a in _attributes(m, m.args.args[0].arg)]
    parts |= {a.attr for a in own}
    if not {a.attr for a in uses} <= parts:
        return None
    taken = _taken(tree, definition, methods)
    named = {p: p if p not in taken else f"{_variable(statement)}_{p}" for p in parts}
    if name := _called(owner):
        named[name] = _variable(statement)
    written: list[ast.stmt] = []
    for part in owner.body:
        if isinstance(part, ast.FunctionDef) and part.name != "__init__":
            written.append(_function(part, named))
        elif isinstance(part, ast.Assign):
            written.append(_renamed_assignment(part, named))
    begins = next((m for m in methods if m.name == "__init__"), None)
    if begins is not None:
        body = _beginning(begins, call, named)
        if body is None:
            return None
        written += body
    elif call.args or call.keywords:
        return None
    replaced = [(a, (ast.Name(named[a.attr], a.ctx),)) for a in uses]
    return Rewrite(((definition, ()), (statement, written or [ast.Pass()]), *replaced))


def _variable(statement: ast.stmt) -> str:
    assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    return statement.targets[0].id


def _taken(
    tree: ast.Module, definition: ast.ClassDef, methods: Sequence[ast.FunctionDef]
) -> set[str]:
    """Return the names that a script binds or reads, without those that a class binds."""
    others = [s for s in tree.body if s is not definition]
    nodes = [n for part in (*others, *methods) for n in ast.walk(part)]
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    names |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    names |= {s.name for s in others if isinstance(s, DEFINITIONS)}
    imported = (n for n in nodes if isinstance(n, ast.alias))
    return names | PREDEFINED | {(n.asname or n.name).partition(".")[0] for n in imported}


def _renamed_assignment(statement: ast.Assign, named: Mapping[str, str]) -> ast.stmt:
    made = deepcopy(statement)
    assert isinstance(made.targets[0], ast.Name)
    made.targets[0].id = named[made.targets[0].id]
    return made


def _function(method: ast.FunctionDef, named: Mapping[str, str]) -> ast.FunctionDef:
    """Return a method as a function of the module."""
    function = deepcopy(method)
    function.name = named[method.name]
    me = function.args.args.pop(0).arg
    stored = {named[a.attr] for a in _attributes(method, me) if not isinstance(a.ctx, ast.Load)}
    function.body = _with_names(function.body, me, named)
    if stored:
        function.body.insert(0, ast.Global(sorted(stored)))
    return function


def _beginning(
    method: ast.FunctionDef, call: ast.Call, named: Mapping[str, str]
) -> list[ast.stmt] | None:
    """Return what creates the attributes; None if that is more than the body of `__init__`."""
    function = deepcopy(method)
    me = function.args.args.pop(0).arg
    values = given_values(function.args, call.args, call.keywords)
    inner = (n for s in function.body for n in ast.walk(s))
    if values is None or any(isinstance(n, ast.Return | ast.Yield) for n in inner):
        return None
    return [*assignments(values), *_with_names(function.body, me, named)]


def _with_names(body: list[ast.stmt], me: str, named: Mapping[str, str]) -> list[ast.stmt]:
    naming = _Naming(me, named)
    return [naming.visit(s) for s in body]


class _Naming(ast.NodeTransformer):
    """Replaces attributes of an object by variables."""

    def __init__(self, me: str, named: Mapping[str, str]) -> None:
        self._me = me
        self._named = named

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == self._me:
            return ast.Name(self._named[node.attr], node.ctx)
        self.generic_visit(node)
        return node


class MergeBases(SyntaxReduction):
    """Moves what a class inherits from a class of the script into it.

    Nothing else reads the name of the other class.
    """

    name = "merge_bases"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such base."""
        classes = {s.name: s for s in statements(tree) if isinstance(s, ast.ClassDef)}
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
        found = []
        for owner in classes.values():
            for place, base in enumerate(owner.bases):
                inherited = classes.get(base.id) if isinstance(base, ast.Name) else None
                if inherited is None or names.count(inherited.name) != 1:
                    continue
                if inherited.decorator_list or inherited.keywords:
                    continue
                merged = _merged(owner, place, inherited)
                found += [Rewrite(((inherited, ()), (owner, (merged,))))] if merged else []
        return found


def _merged(owner: ast.ClassDef, place: int, base: ast.ClassDef) -> ast.ClassDef | None:
    """Return a class with the body of its base; None if a method of the base is extended."""
    own = {s.name: s for s in owner.body if isinstance(s, ast.FunctionDef)}
    parts = []
    for part in base.body:
        if not isinstance(part, ast.FunctionDef) or part.name not in own:
            parts.append(part)
        elif _extends(own[part.name]):
            return None
    merged = deepcopy(owner)
    merged.bases[place : place + 1] = deepcopy(base.bases)
    merged.body = [*deepcopy(parts), *merged.body]
    return merged


def _extends(method: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(method))
