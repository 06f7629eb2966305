"""The statements that others need: a static slice over names and attributes.

After Weiser, "Program slicing" (IEEE Trans. Software Eng. 10, 1984), without control flow: a name
needs every statement that binds it in the nearest scope that does, and an attribute needs every
statement that stores it. The slice is a guess, because calls change objects. A run decides whether
it still fails.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tcdebug.minifier.reduction.script.rewriting import DEFINITIONS, FUNCTIONS, own_parts

CALLED_BY_TORCH = ("forward", "backward", "setup_context")
"""Methods that a class defines and torch calls."""
Scope = ast.AST


@dataclass
class Slices:
    """The dependencies between the statements of a tree."""

    tree: ast.Module
    order: list[ast.stmt] = field(default_factory=list)
    """All statements in the order of the text."""
    _parents: dict[ast.stmt, ast.stmt | None] = field(default_factory=dict)
    _scopes: dict[ast.stmt, tuple[Scope, ...]] = field(default_factory=dict)
    """The scopes that a statement reads names from, the innermost first."""
    _binding: dict[tuple[Scope, str], list[ast.stmt]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _attributes: dict[str, list[ast.stmt]] = field(default_factory=lambda: defaultdict(list))
    _star_imports: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._enter(self.tree, None, (self.tree,))

    def needed_by(
        self, seeds: Iterable[ast.stmt], spare: Collection[ast.stmt] = ()
    ) -> set[ast.stmt]:
        """Return the statements and all statements that they need.

        Of several statements that bind a name, those that are `spare` are needed only if all are,
        and of these only the first. Where a parameter has the name, none is.
        """
        return self.closure([*seeds, *self._star_imports], spare=spare)

    def closure(
        self,
        seeds: Iterable[ast.stmt],
        further: Callable[[ast.stmt], Iterable[ast.stmt]] = lambda statement: (),
        spare: Collection[ast.stmt] = (),
    ) -> set[ast.stmt]:
        """Return the statements, all statements that they need, and what is `further` needed.

        What a class stores in an attribute is needed only if the class is. `spare` is that of
        `needed_by`.
        """
        kept: set[ast.stmt] = set()
        waiting: dict[ast.stmt, list[ast.stmt]] = defaultdict(list)
        left = [*seeds]
        while left:
            statement = left.pop()
            if statement in kept:
                continue
            kept.add(statement)
            left += [*self.needs(statement, spare), *further(statement)]
            left += waiting.pop(statement, ())
            for store in self._stores(statement):
                owner = self._class_around(store)
                (left if owner is None or owner in kept else waiting[owner]).append(store)
        return kept

    def _enter(self, node: ast.AST, parent: ast.stmt | None, scopes: tuple[Scope, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                self._enter(child, parent, scopes)
                continue
            self.order.append(child)
            self._parents[child], self._scopes[child] = parent, scopes
            self._bind(child, scopes)
            if isinstance(child, DEFINITIONS):
                # methods do not read the names of their class
                outer = scopes[1:] if isinstance(scopes[0], ast.ClassDef) else scopes
                self._enter(child, child, (child, *outer))
            else:
                self._enter(child, child, scopes)

    def _bind(self, statement: ast.stmt, scopes: tuple[Scope, ...]) -> None:
        scope = scopes[0]
        for name in bound_names(statement):
            self._binding[scope, name].append(statement)
            if isinstance(scope, ast.ClassDef):
                self._attributes[name].append(statement)
        if isinstance(statement, ast.Global | ast.Nonlocal):
            for outer in scopes:
                for name in statement.names:
                    self._binding[outer, name].append(statement)
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            self._star_imports.append(statement)
        for node in own_parts(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._attributes[node.attr].append(statement)

    def runs_in(self, statement: ast.stmt) -> ast.stmt | None:
        """Return the innermost function or class around a statement; None if the module runs it.

        A class body runs where the class is defined, but only if the class is needed.
        """
        scope = self._scopes[statement][0]
        return scope if isinstance(scope, DEFINITIONS) else None

    def loop_around(self, statement: ast.stmt) -> ast.stmt:
        """Return the innermost loop around a statement, or the statement itself."""
        around = self._parents[statement]
        while around is not None and not isinstance(around, ast.For | ast.AsyncFor | ast.While):
            around = self._parents[around]
        return around or statement

    def binders(self, name: str, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements that bind a name which a statement reads."""
        return self._binders(name, self._scopes[statement])

    def needs(self, statement: ast.stmt, spare: Collection[ast.stmt] = ()) -> Iterator[ast.stmt]:
        """Yield the statements that a statement needs directly, apart from attributes."""
        parent = self._parents[statement]
        if parent is not None:
            yield parent
        for node in own_parts(statement):
            if isinstance(node, ast.Name):
                yield from self._binders(node.id, self._scopes[statement], spare)
        if isinstance(statement, FUNCTIONS):
            yield from (s for s in self.order if self._returns(s, statement))
        elif isinstance(statement, ast.ClassDef):
            yield from (s for s in statement.body if _called_implicitly(s))

    def _stores(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield the statements that store an attribute which a statement names."""
        for node in own_parts(statement):
            if isinstance(node, ast.Attribute):
                yield from self._attributes.get(node.attr, ())

    def _class_around(self, statement: ast.stmt) -> ast.ClassDef | None:
        """Return the innermost class around a statement."""
        around = self._parents[statement]
        while around is not None and not isinstance(around, ast.ClassDef):
            around = self._parents[around]
        return around

    def _binders(
        self, name: str, scopes: tuple[Scope, ...], spare: Collection[ast.stmt] = ()
    ) -> list[ast.stmt]:
        for scope in scopes:
            found = self._binding.get((scope, name), [])
            given = isinstance(scope, FUNCTIONS) and name in _parameters(scope)
            if found or given:
                left = [s for s in found if s not in spare]
                return left or ([] if given else found[:1])
        return []

    def _returns(self, statement: ast.stmt, function: ast.AST) -> bool:
        """Return whether a statement of a function gives its result or sets up its object."""
        if self._scopes[statement][0] is not function:
            return False
        parts = list(own_parts(statement))
        if any(isinstance(n, ast.Return | ast.Yield | ast.YieldFrom) for n in parts):
            return True
        return any(isinstance(n, ast.Name) and n.id == "super" for n in parts)


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its scope."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
        return
    for node in own_parts(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            yield node.name


def _parameters(function: ast.AST) -> set[str]:
    assert isinstance(function, FUNCTIONS)
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _called_implicitly(statement: ast.stmt) -> bool:
    if not isinstance(statement, FUNCTIONS):
        return False
    name = statement.name
    return name in CALLED_BY_TORCH or (name.startswith("__") and name.endswith("__"))
