"""Inserts hooks into the Python code that calls the kernels of a graph.

The wrappers of inductor and of the embedded compiler are functions that allocate memory, call
kernels and ATen, and return results. A hook before and after each statement that computes sees the
local variables, and with them the values between the kernels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

BEFORE, AFTER, RETURN = "tcdebug_before", "tcdebug_after", "tcdebug_return"
"""The names of the hooks. They take the number of a statement and the local variables."""

ALLOCATIONS = ("empty_strided", "empty_", "alloc_from_pool", "torch.empty")
VIEWS = ("reinterpret_tensor", "laid_out", "reshaped", "torch.as_strided")
IDLE = (
    *("assert_", "args.", "get_raw_stream", "current_stream", "torch.cuda.", "int"),
    *("raise_status", "get_num_threads", "record_", "stream", "copy_misaligned", "set_grad"),
)


class Effect(StrEnum):
    """What a statement does to values."""

    COMPUTES = "computes"
    ALLOCATES = "allocates"
    ALIASES = "aliases"
    """Gives a name to memory that has another name."""
    DELETES = "deletes"
    IDLE = "idle"


@dataclass(frozen=True)
class Statement:
    """A statement of a wrapper."""

    effect: Effect
    text: str
    callee: str = ""
    arguments: tuple[tuple[str, ...], ...] = ()
    """The variables in each positional argument."""
    out: tuple[str, ...] = ()
    """The variables in the argument `out`."""
    targets: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that the statement reads or writes."""
        given = (name for names in self.arguments for name in names)
        return tuple(dict.fromkeys((*given, *self.out, *self.targets)))


def instrument(function: ast.FunctionDef) -> tuple[Statement, ...]:
    """Insert hooks into a wrapper, and return its statements by the number the hooks pass."""
    statements: list[Statement] = []
    function.body = _block(function.body, statements)
    ast.fix_missing_locations(function)
    return tuple(statements)


def _block(body: Sequence[ast.stmt], statements: list[Statement]) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.With | ast.Try):
            node.body = _block(node.body, statements)
            made.append(node)
            continue
        if isinstance(node, ast.If) and not isinstance(node.test, ast.NamedExpr):
            if not node.orelse:  # otherwise it is control flow of the graph itself
                node.body = _block(node.body, statements)
            made.append(node)
            continue
        if isinstance(node, ast.Return):
            made += [_hook(RETURN, 0), node]
            continue
        found = describe(node)
        if found.effect is Effect.IDLE:
            made.append(node)
            continue
        number = len(statements)
        statements.append(found)
        if found.effect is Effect.COMPUTES:
            made.append(_hook(BEFORE, number))
        made += [node, _hook(AFTER, number)]
    return made


def _hook(name: str, number: int) -> ast.stmt:
    return ast.parse(f"{name}({number}, locals())").body[0]


def describe(node: ast.stmt) -> Statement:
    """Return what a statement does."""
    text = ast.unparse(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _call(node.value, (), text)
    launch = node.test if isinstance(node, ast.If) else None
    if isinstance(launch, ast.NamedExpr) and isinstance(launch.value, ast.Call):
        return _call(launch.value, (), ast.unparse(launch.value))
    if isinstance(node, ast.Assign):
        targets = tuple(_names(node.targets))
        if isinstance(node.value, ast.Call):
            return _call(node.value, targets, text)
        if isinstance(node.value, ast.Name | ast.Subscript):
            return Statement(Effect.ALIASES, text, "", (tuple(_names([node.value])),), (), targets)
    if isinstance(node, ast.Delete):
        return Statement(Effect.DELETES, text, targets=tuple(_names(node.targets)))
    if isinstance(node, ast.While | ast.For | ast.If):
        targets = tuple(n.id for n in ast.walk(node) if _is_stored(n))  # type: ignore[attr-defined]
        return Statement(
            Effect.COMPUTES, text, "control flow", (tuple(_names([node])),), (), targets
        )
    return Statement(Effect.IDLE, text)


def _call(call: ast.Call, targets: tuple[str, ...], text: str) -> Statement:
    callee = ast.unparse(call.func)
    arguments = tuple(tuple(_names([a])) for a in call.args)
    whole = [k.value for k in call.keywords if k.arg == "out" and isinstance(k.value, ast.Name)]
    out = tuple(_names(whole))  # a part of memory may be given too, as an expression
    others = tuple(tuple(_names([k.value])) for k in call.keywords if k.value not in whole)
    effect = Effect.COMPUTES
    if targets and callee.startswith(ALLOCATIONS):
        effect = Effect.ALLOCATES
    elif targets and callee.startswith(VIEWS):
        effect = Effect.ALIASES
    elif callee.startswith(IDLE):
        effect = Effect.IDLE
    return Statement(effect, text, callee, (*arguments, *others), out, targets)


def _names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                yield part.id


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
