"""Simplifies expressions: arguments, operands, numbers, and values that a run has observed."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tcdebug.minifier.reduction.script.rewriting import (
    DEFINITIONS,
    Rewrite,
    SyntaxReduction,
    expressions,
    own_parts,
    statements,
)
from tcdebug.minifier.reduction.script.scopes import blocks_of, is_declared, names_of, scopes_of
from tcdebug.minifier.reduction.script.tables import entries

TOLERANCES = frozenset({"rtol", "atol", "tol", "eps", "equal_nan"})
"""Arguments that set a tolerance. Without them, rounding would count as a failure."""
LONGEST = 88
"""The limit on the length of a line into which a name is inlined, in characters."""


class ObservedLiterals(SyntaxReduction):
    """Replaces an expression by the literal value, function or class that it was in a run.

    `seen` maps the text of an expression to the text of its only value. A function that is named
    instead of looked up loses the script's own decorators, which may only enter it in a table. With
    `asserted`, one side of a comparison that is asserted is replaced: what a run in eager gave.
    """

    def __init__(self, seen: Mapping[str, str], *, asserted: bool = False) -> None:
        self._seen = seen
        self._asserted = asserted
        self.name = f"{'asserted' if asserted else 'observed'}_literals"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each expression with a known value, outer ones first.

        Comparisons are left out, because they say what the failure is. What is asserted has edits
        of its own, since later changes must keep a value that is written there.
        """
        assertions = [s for s in statements(tree) if isinstance(s, ast.Assert)]
        asserted = {id(n) for s in assertions for n in ast.walk(s)}
        compared = {id(n) for s in assertions for n in _compared(s.test)}
        own = own_decorators(tree)
        found = []
        for node in expressions(tree):
            if isinstance(node, ast.Constant | ast.Compare | ast.BoolOp):
                continue
            if id(node) not in compared if self._asserted else id(node) in asserted:
                continue
            text = self._seen.get(ast.unparse(node))
            procedure = isinstance(node, ast.Call) and text == "None"
            if text is not None and not procedure:
                value = ast.parse(text, mode="eval").body
                names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
                dropped = [(d, ()) for name in names & own.keys() for d in own[name]]
                found.append(Rewrite(((node, (value,)), *dropped)))
        return found


def _compared(test: ast.expr) -> list[ast.expr]:
    """Return the sides of a comparison, which may be negated."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return [test.left, *test.comparators] if isinstance(test, ast.Compare) else []


def own_decorators(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Return the decorators that the script itself defines, by the name of what they decorate."""
    named = {s.name for s in statements(tree) if isinstance(s, DEFINITIONS)}
    named |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_stored(n)}
    return {
        s.name: [d for d in s.decorator_list if _root(d) in named]
        for s in tree.body
        if isinstance(s, DEFINITIONS)
    }


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _root(node: ast.expr) -> str | None:
    """Return the name that an expression such as `a.b(c)` begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


class DropArguments(SyntaxReduction):
    """Removes arguments of calls, elements of displays, and messages of assertions."""

    name = "drop_arguments"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each, the last of several first."""
        found = []
        required = dict(_required(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and node.msg is not None:
                found.append(Rewrite.of(node.msg))
            elif isinstance(node, ast.Call):
                if len(node.args) + len(node.keywords) <= required.get(_called(node), 0):
                    continue
                found += [Rewrite.of(k) for k in node.keywords if k.arg not in TOLERANCES]
                found += [Rewrite.of(argument) for argument in node.args[::-1]]
            elif isinstance(node, ast.Dict | ast.Set) or (
                isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load)
            ):
                parts = [*entries(node)][::-1]
                found += [Rewrite(tuple((part, ()) for part in entry)) for entry in parts]
            elif isinstance(node, ast.Import | ast.ImportFrom) and len(node.names) > 1:
                found += [Rewrite.of(alias) for alias in node.names]
        return found


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _required(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of functions and classes with the number of arguments that they require."""
    for statement in statements(tree):
        match statement:
            case ast.FunctionDef(decorator_list=[]):
                yield statement.name, _without_default(statement)
            case ast.ClassDef(decorator_list=[], body=body):
                for method in body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        yield statement.name, _without_default(method) - 1


def _without_default(function: ast.FunctionDef) -> int:
    given = function.args
    return len(given.posonlyargs) + len(given.args) - len(given.defaults)


class HoistOperands(SyntaxReduction):
    """Replaces an operation by one of its operands, and a call by its receiver or argument.

    The condition of an assertion stays, because it says what the failure is. With `calls`, only
    calls are replaced.
    """

    def __init__(self, *, calls: bool) -> None:
        self._calls = calls
        self.name = f"hoist_{'arguments' if calls else 'operands'}"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return the operands of each operation as edits, outer operations first."""
        conditions = {id(s.test) for s in statements(tree) if isinstance(s, ast.Assert)}
        return [
            Rewrite.of(node, operand)
            for node in expressions(tree)
            if id(node) not in conditions
            if isinstance(node, ast.Call) or not self._calls
            for operand in _operands(node)
        ]


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Call():
            if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
                yield node.func.value
            yield from (a for a in node.args[:2] if not isinstance(a, ast.Constant | ast.Starred))
        case ast.BinOp():
            yield from (node.left, node.right)
        case ast.BoolOp():
            yield from node.values
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.UnaryOp() if not isinstance(node.operand, ast.Constant):
            yield node.operand
        case ast.Subscript():
            yield node.value
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            yield node.generators[0].iter


def _is_module(node: ast.expr) -> bool:
    """Return whether an expression looks like a module: torch, torch.nn.functional, F."""
    names = ast.unparse(node).split(".")
    return names[0] in ("torch", "nn", "F", "np", "numpy", "math", "os", "sys")


class ShrinkNumbers(SyntaxReduction):
    """Replaces integers by a smaller one: all equal integers together, or one at a time.

    Equal integers usually are the same size.
    """

    def __init__(self, to: int, *, together: bool) -> None:
        self._to = to
        self._together = together
        self.name = f"numbers_{to}{'_together' if together else ''}"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each larger integer, the largest first."""
        found: dict[int, list[ast.Constant]] = {}
        for node in expressions(tree):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value > self._to:
                found.setdefault(node.value, []).append(node)
        edits = []
        for value in sorted(found, reverse=True):
            parts = [(node, (ast.Constant(self._to),)) for node in found[value]]
            groups = [parts] if self._together else [[part] for part in parts]
            edits += [Rewrite(tuple(group)) for group in groups]
        return edits


class InlineNames(SyntaxReduction):
    """Replaces the only read of a name by the name's value.

    A name that is never read is removed. So is one that only the next statement reads, if that
    binds it again.
    """

    name = "inline_names"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each such name whose line stays short."""
        lines = {
            id(part): s
            for s in statements(tree)
            if not isinstance(s, (*DEFINITIONS, ast.While, ast.Match))
            for part in own_parts(s)
        }
        rebound = dict(_rebound(tree))
        found = []
        for statement, scope in scopes_of(tree):
            target = _assigned(statement)
            if target is None or is_declared(scope, target.id):
                continue
            assert isinstance(statement, ast.Assign)
            names = names_of(scope, target.id)
            read = [n for n in names if isinstance(n.ctx, ast.Load)]
            if not read:
                found.append(Rewrite.of(statement, ast.Expr(statement.value)))
                continue
            use = _only_use(target.id, rebound.get(id(statement), ()))
            if use is None and len(read) == 1 and len(names) == 2:
                use = read[0]
            line = None if use is None else lines.get(id(use))
            if use is None or line is None:
                continue
            first = ast.unparse(line).partition("\n")[0]
            length = line.col_offset + len(first) + len(ast.unparse(statement.value))
            if length <= LONGEST:
                found.append(Rewrite(((statement, ()), (use, (statement.value,)))))
        return found


class InlineAttributes(SyntaxReduction):
    """Replaces the only read of an attribute by its value, if it is stored once."""

    name = "inline_attributes"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each attribute."""
        nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
        stored = Counter(n.attr for n in nodes if not isinstance(n.ctx, ast.Load))
        reads = {n.attr: n for n in nodes if isinstance(n.ctx, ast.Load)}
        read = Counter(n.attr for n in nodes if isinstance(n.ctx, ast.Load))
        found = []
        for statement in statements(tree):
            match statement:
                case ast.Assign(targets=[ast.Attribute(attr=attr)], value=value):
                    if stored[attr] == read[attr] == 1:
                        found.append(Rewrite(((statement, ()), (reads[attr], (value,)))))
        return found


def _only_use(name: str, nodes: Iterable[ast.AST]) -> ast.Name | None:
    """Return the only node that reads a name; None if there is none, or several."""
    uses = [
        n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    return uses[0] if len(uses) == 1 else None


def _rebound(tree: ast.Module) -> Iterator[tuple[int, list[ast.AST]]]:
    """Yield each assignment whose name the next statement binds again, and that one's value."""
    for block in blocks_of(tree):
        for first, second in itertools.pairwise(block):
            name, again = _assigned(first), _assigned(second)
            if name is not None and again is not None and name.id == again.id:
                assert isinstance(second, ast.Assign)
                yield id(first), list(ast.walk(second.value))


def _assigned(statement: ast.stmt) -> ast.Name | None:
    """Return the name that a plain assignment to a single name binds."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return target if isinstance(target, ast.Name) else None
