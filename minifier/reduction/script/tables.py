"""Simplifies tables, such as a dictionary of functions, and what looks their entries up.

A table keeps everything that it names. Its entries therefore go before the statements do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    expressions,
    statements,
)

Display = ast.Dict | ast.List | ast.Tuple | ast.Set
VIEWS = ("items", "keys", "values")


class DropEntries(SyntaxReduction):
    """Removes the entries of tables that name a function or a class of the script."""

    name = "drop_entries"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each entry."""
        defined = {s.name for s in statements(tree) if isinstance(s, DEFINITIONS)}
        return [
            Rewrite(tuple((part, ()) for part in entry))
            for node in expressions(tree)
            if isinstance(node, Display)
            for entry in entries(node)
            if any(isinstance(n, ast.Name) and n.id in defined for n in _nodes(entry))
        ]


def entries(display: Display) -> Iterator[tuple[ast.expr, ...]]:
    """Yield the elements of a display. An entry of a dictionary is a key and a value."""
    if not isinstance(display, ast.Dict):
        yield from ((element,) for element in display.elts)
    elif None not in display.keys:  # a merged dictionary has no key
        yield from ((k, v) for k, v in zip(display.keys, display.values, strict=True) if k)


def _nodes(entry: tuple[ast.expr, ...]) -> Iterator[ast.AST]:
    for part in entry:
        yield from ast.walk(part)


class LookUpEntries(SyntaxReduction):
    """Replaces the look-up of an entry by that entry, and the first of a table by its first entry.

    A table is a display, or a name that is bound to one and never bound again.
    """

    name = "look_up_entries"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each look-up, and for each single target of an unpacking."""
        tables = dict(_tables(tree))
        found = []
        for node in expressions(tree):
            entry = _looked_up(node, tables)
            if entry is not None:
                found.append(Rewrite.of(node, entry))
        read = [
            n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        ]
        return found + [edit for s in statements(tree) for edit in _unpacked(s, read)]


def _tables(tree: ast.Module) -> Iterator[tuple[str, Display]]:
    """Yield each name that the script binds once, to a display, with that display."""
    stored = [
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    ]
    for statement in statements(tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=table):
                if isinstance(table, Display) and stored.count(name) == 1:
                    yield name, table


def _looked_up(node: ast.expr, tables: Mapping[str, Display]) -> ast.expr | None:
    """Return the entry that an expression looks up; None if it is no look-up in a table."""

    def table_of(value: ast.expr) -> ast.expr | None:
        return tables.get(value.id) if isinstance(value, ast.Name) else value

    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            return _entry(table_of(value), key)
        case ast.Call(func=ast.Name("next"), args=[iterator], keywords=[]):
            pass
        case _:
            return None
    begun = _iterated(iterator) is not None
    while (of := _iterated(iterator)) is not None:
        iterator = of
    match iterator:
        case ast.Call(func=ast.Name("zip"), args=columns, keywords=[]) if columns:
            return ast.Tuple([_first_of(c) for c in columns], ast.Load())
        case ast.Call(func=ast.Attribute(value=value, attr=view), args=[], keywords=[]):
            return _first(table_of(value), view) if view in VIEWS else None
        case ast.Call(func=ast.Name("enumerate"), args=[value], keywords=[]):
            element = _first(table_of(value), "keys") or _first_of(value)
            return ast.Tuple([ast.Constant(0), element], ast.Load())
    first = _first(table_of(iterator), "keys")
    sequence = begun and isinstance(iterator, ast.Name | ast.Attribute)
    return first or (_first_of(iterator) if sequence else None)


def _first_of(value: ast.expr) -> ast.expr:
    """Return the expression of what a sequence gives first."""
    return ast.Subscript(value, ast.Constant(0), ast.Load())


def _iterated(node: ast.expr) -> ast.expr | None:
    """Return what a call of `iter` iterates over; None if it is no such call."""
    match node:
        case ast.Call(func=ast.Name("iter"), args=[of], keywords=[]):
            return of
    return None


def _entry(table: ast.expr | None, key: object) -> ast.expr | None:
    """Return the value of a key of a dictionary, or the element of a sequence."""
    if isinstance(table, ast.Dict):
        for known, value in zip(table.keys, table.values, strict=True):
            if isinstance(known, ast.Constant) and known.value == key:
                return value
    if isinstance(table, ast.List | ast.Tuple) and isinstance(key, int):
        return table.elts[key] if -len(table.elts) <= key < len(table.elts) else None
    return None


def _first(table: ast.expr | None, view: str) -> ast.expr | None:
    """Return what iterating over a table, or over a view of a dictionary, gives first."""
    if isinstance(table, ast.List | ast.Tuple | ast.Set) and table.elts:
        return table.elts[0] if view == "keys" else None
    if not isinstance(table, ast.Dict) or not table.keys or table.keys[0] is None:
        return None
    key, value = table.keys[0], table.values[0]
    shown = {"keys": key, "values": value, "items": ast.Tuple([key, value], ast.Load())}
    return shown[view]


def _unpacked(statement: ast.stmt, read: Sequence[ast.Name]) -> Iterator[Rewrite]:
    """Yield, for each target of an unpacking of written values, the same without that target.

    If the target is read once, its value is put there.
    """
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pass
        case _:
            return
    pairs = list(zip(targets, values, strict=False))
    if len(targets) != len(values) or len(pairs) < 2:
        return
    for place, (target, value) in enumerate(pairs):
        rest = pairs[:place] + pairs[place + 1 :]
        uses = [n for n in read if isinstance(target, ast.Name) and n.id == target.id]
        given = [(use, (value,)) for use in uses] if len(uses) == 1 else []
        yield Rewrite(((statement, (_assignment(rest),)), *given))


def _assignment(pairs: Sequence[tuple[ast.expr, ast.expr]]) -> ast.Assign:
    if len(pairs) == 1:
        return ast.Assign([pairs[0][0]], pairs[0][1])
    targets, values = zip(*pairs, strict=True)
    return ast.Assign([ast.Tuple([*targets], ast.Store())], ast.Tuple([*values], ast.Load()))
