"""Rewrites the syntax tree of a script: the base of its reductions."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tcdebug.minifier.cases.script_text import ScriptText

OF_MODULES = frozenset({"__file__", "__name__", "__doc__", "__builtins__", "__spec__"})
"""Names that every module has."""
PREDEFINED = frozenset(dir(builtins)) | OF_MODULES
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True)
class Rewrite:
    """One edit: nodes of a tree, each with the nodes that replace it.

    A statement may be replaced by any number of statements, an expression by one expression. An
    argument or an element may be replaced by nothing.
    """

    parts: tuple[tuple[ast.AST, Sequence[ast.AST]], ...]

    @classmethod
    def of(cls, node: ast.AST, *replacements: ast.AST) -> Rewrite:
        """Return the edit that replaces a single node."""
        return cls(((node, replacements),))


class SyntaxReduction:
    """A reduction whose edits are rewrites of the syntax tree, numbered in their order."""

    name: str
    ordered = False

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return the possible edits of a tree, the most promising first."""
        raise NotImplementedError

    def edits(self, script: ScriptText) -> list[str]:
        """Return the numbers of the edits."""
        return [str(n) for n in range(len(self.rewrites(ast.parse(script.text))))]

    def descriptions(self, script: ScriptText) -> list[str]:
        """Return what each edit replaces, and by what, as text."""
        return [_described(rewrite) for rewrite in self.rewrites(ast.parse(script.text))]

    def apply(self, script: ScriptText, edits: Sequence[str]) -> ScriptText | None:
        """Return the script with these edits; None if they leave no valid tree."""
        tree = ast.parse(script.text)
        found = self.rewrites(tree)
        text = rewritten(tree, [found[int(number)] for number in edits])
        return None if text is None else script.with_text(text)


def _described(rewrite: Rewrite) -> str:
    node, replacements = rewrite.parts[0]
    return " -> ".join(ast.unparse(ast.fix_missing_locations(n)) for n in (node, *replacements))


def last_name(node: ast.expr) -> str:
    """Return a name, or the last part of a dotted one; empty for any other expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def rewritten(tree: ast.Module, rewrites: Sequence[Rewrite]) -> str | None:
    """Return the text of a tree after rewrites; None if it is not valid Python."""
    new = {id(node): nodes for rewrite in rewrites for node, nodes in rewrite.parts}
    try:
        _Rewriting(new).visit(tree)
        return ast.unparse(ast.fix_missing_locations(tree))
    except (ValueError, AttributeError, TypeError, IndexError):
        return None  # a node lacks a part that it must have


class _Rewriting(ast.NodeTransformer):
    """Replaces nodes. What replaces a node may contain further nodes to replace."""

    def __init__(self, new: dict[int, Sequence[ast.AST]]) -> None:
        self._new = new

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST] | None:
        replacements = self._new.pop(id(node), None)
        if replacements is None:
            return self._filled(self.generic_visit(node))
        visited = [self.visit(other) for other in replacements]
        flat = [n for v in visited if v is not None for n in (v if isinstance(v, list) else [v])]
        if isinstance(node, ast.stmt):
            return flat
        return flat[0] if flat else None

    def _filled(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        """Return a node whose body is not empty. A try without handlers is its body."""
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined] # every node with a body list
        if isinstance(node, ast.Try) and not (node.handlers or node.finalbody):
            return [*node.body, *node.orelse]
        return node


def is_valid(script: ScriptText, allowed: frozenset[str] = frozenset()) -> bool:
    """Return whether a script compiles and reads no name that nothing defines.

    `allowed` are undefined names that the original reads too.
    """
    return undefined(script.text) <= allowed


@lru_cache(maxsize=4096)
def undefined(text: str) -> frozenset[str]:
    """Return the global names that a script reads and does not define, or its syntax error.

    With a star import, every name counts as defined.
    """
    try:
        compile(text, "<script>", "exec")
        table = symtable.symtable(text, "<script>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return frozenset({"<syntax error>"})
    if " import *" in text:
        return frozenset()
    defined = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    read: set[str] = set()
    for scope in _scopes(table):
        for symbol in scope.get_symbols():
            is_global = symbol.is_global() or scope is table
            if is_global and symbol.is_assigned() and symbol.is_declared_global():
                defined.add(symbol.get_name())
            if is_global and symbol.is_referenced():
                read.add(symbol.get_name())
    return frozenset(read - defined - PREDEFINED)


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node in the order of the text, outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        yield from statements(child)


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions below a node that are read, outer ones first.

    Targets, annotations, decorators and patterns are left out.
    """
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            stored = isinstance(getattr(child, "ctx", None), ast.Store | ast.Del)
            if isinstance(child, ast.expr) and not stored:
                yield child
            if not isinstance(child, ast.JoinedStr):
                yield from expressions(child)


def own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield all nodes of a statement, except those of the statements inside it."""
    yield statement
    stack = [c for c in ast.iter_child_nodes(statement) if not isinstance(c, ast.stmt)]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt))
