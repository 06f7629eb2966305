"""Replaces a loop by iterations of it, or by an expression."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from tcdebug.minifier.reduction.script.inlining import Substituting
from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    statements,
)
from tcdebug.minifier.reduction.script.scopes import blocks_of, is_read

Elements = Mapping[str, Sequence[ast.expr]]
MOST = 4
"""A loop with more iterations is not written out."""


def elements_of(iterator: ast.expr, named: Elements | None = None) -> Sequence[ast.expr]:
    """Return the elements of what is written in full; nothing if they are not known, or many.

    `named` maps names to what they iterate over.
    """
    found: Sequence[ast.expr] = ()
    match iterator:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            found = () if any(isinstance(e, ast.Starred) for e in elements) else elements
        case ast.Name(id=name):
            found = (named or {}).get(name, ())
        case ast.Call(func=ast.Name("range"), args=[ast.Constant(value=int(stop))], keywords=[]):
            found = [ast.Constant(n) for n in range(min(stop, MOST + 1))]
        case ast.Call(func=ast.Name("enumerate"), args=[of], keywords=[]):
            numbered = enumerate(elements_of(of, named))
            found = [ast.Tuple([ast.Constant(n), e], ast.Load()) for n, e in numbered]
        case ast.Call(func=ast.Name("zip"), args=columns, keywords=[]):
            rows = zip(*(elements_of(c, named) for c in columns), strict=False)
            found = [ast.Tuple([*row], ast.Load()) for row in rows]
        case ast.Call(
            func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items"), args=[]
        ):
            pairs = zip(keys, values, strict=True)
            found = [ast.Tuple([k, v], ast.Load()) for k, v in pairs if k is not None]
    return found if len(found) <= MOST else ()


def _named_elements(tree: ast.Module) -> dict[str, Sequence[ast.expr]]:
    """Return the elements of the enumerations of a script, and of the displays that it names."""
    found: dict[str, Sequence[ast.expr]] = {}
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not is_read(n)]
    for statement in statements(tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() as value):
                if stored.count(name) == 1:
                    found[name] = elements_of(value)
            case ast.ClassDef(name=name, bases=[base]) if ast.unparse(base).endswith("Enum"):
                members = (s.targets[0] for s in statement.body if isinstance(s, ast.Assign))
                found[name] = [
                    ast.Attribute(ast.Name(name, ast.Load()), m.id, ast.Load())
                    for m in members
                    if isinstance(m, ast.Name)
                ]
    return found


class UnrollLoops(SyntaxReduction):
    """Replaces a loop by its last iteration, before which the others run one statement of the body.

    What fails in a later iteration mostly needs one call of the earlier ones.
    """

    name = "unroll_loops"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return the last iteration alone as the first edit, and one edit for each statement."""
        found = []
        named = _named_elements(tree)
        for node in statements(tree):
            if not isinstance(node, ast.For) or node.orelse or _leaves(node.body):
                continue
            elements = elements_of(node.iter, named)
            if len(elements) < 2:
                continue
            last = _iteration(node, elements[-1], node.body)
            found.append(Rewrite.of(node, *last))
            for kept in node.body:
                before = [s for e in elements[:-1] for s in _iteration(node, e, [kept])]
                found.append(Rewrite.of(node, *before, *deepcopy(last)))
        return found


class LoopsToExpressions(SyntaxReduction):
    """Replaces a loop that only fills a new list, or adds to a new number, by one assignment.

    `x = []` and `for t in i: x.append(e)` become `x = [e for t in i]`. `x = 0` and
    `for t in i: x += e` become `x = sum([e for t in i])`.
    """

    name = "loops_to_expressions"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each loop whose variable has its first value in the same block."""
        found = []
        for body in blocks_of(tree):
            for place, loop in enumerate(body):
                if not isinstance(loop, ast.For) or loop.orelse or len(loop.body) != 1:
                    continue
                of = ast.comprehension(loop.target, loop.iter, [], 0)
                match loop.body[0]:
                    case ast.Expr(
                        value=ast.Call(
                            func=ast.Attribute(value=ast.Name(id=name), attr="append"),
                            args=[element],
                        )
                    ):
                        value: ast.expr = ast.ListComp(element, [of])
                        before = _first_value(body[:place], name, "[]")
                    case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=element):
                        summed = ast.ListComp(element, [of])
                        value = ast.Call(ast.Name("sum", ast.Load()), [summed], [])
                        before = _first_value(body[:place], name, "0", "0.0")
                    case _:
                        continue
                if before is None or _names(loop.iter, name) or _names(element, name):
                    continue
                made = ast.Assign([ast.Name(name, ast.Store())], value)
                found.append(Rewrite(((before, ()), (loop, (made,)))))
        return found


def _first_value(before: Sequence[ast.stmt], name: str, *values: str) -> ast.stmt | None:
    """Return the statement that gives a variable one of some values, and is the last to use it."""
    for statement in reversed(before):
        if not _names(statement, name):
            continue
        match statement:
            case ast.Assign(targets=[ast.Name()], value=value) if ast.unparse(value) in values:
                return statement
        return None
    return None


def _names(node: ast.AST, name: str) -> bool:
    """Return whether a part of a script contains a name."""
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements leave or continue the loop around them."""
    return any(_has_jump(s) for s in body)


def _has_jump(node: ast.AST) -> bool:
    if isinstance(node, ast.Break | ast.Continue):
        return True
    if isinstance(node, (*DEFINITIONS, ast.For, ast.While)):
        return False
    return any(_has_jump(child) for child in ast.iter_child_nodes(node))


def _iteration(loop: ast.For, element: ast.expr, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return one iteration, with the element in place of the variable where that is possible."""
    target = loop.target
    written = deepcopy(list(body))
    names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    uses = [n for s in written for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in names]
    if not uses:
        return written
    given = dict(values_of(target, element))
    if names == given.keys() and all(isinstance(n.ctx, ast.Load) for n in uses):
        return [Substituting(given).visit(s) for s in written]
    return [ast.Assign([deepcopy(target)], deepcopy(element)), *written]


def values_of(target: ast.expr, element: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a target binds to parts that may be written more than once."""
    match target, element:
        case ast.Name(id=name), ast.Constant() | ast.Name() | ast.Attribute():
            yield name, element
        case ast.Tuple(elts=targets), ast.Tuple(elts=parts) if len(targets) == len(parts):
            for inner, part in zip(targets, parts, strict=True):
                yield from values_of(inner, part)
