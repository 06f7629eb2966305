"""Scalar expressions: the value that a loop computes for one element.

Expressions are immutable and typed. `key` is a structural hash: equal expressions have equal keys
in every process. An expression may be used several times; the code generator computes it once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TypeVar

import torch

from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, Symbol, to_index
from tcdebug.compiler.ir.arithmetic.polynomial import Bounds

Number = bool | int | float
Value = TypeVar("Value")


def _key(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class Expr:
    """A scalar of a dtype. Only its subclasses are instantiated. Compare expressions by `key`."""

    dtype: torch.dtype
    key: str = field(init=False, repr=False)
    axes: frozenset[Axis] = field(init=False, repr=False)
    symbols: frozenset[Symbol] = field(init=False, repr=False)

    def _finish(self, *parts: str, of: tuple[Expr | Index, ...] = ()) -> None:
        object.__setattr__(self, "key", _key(type(self).__name__, str(self.dtype), *parts))
        axes: frozenset[Axis] = frozenset()
        symbols: frozenset[Symbol] = frozenset()
        for part in of:
            axes |= part.axes
            symbols |= part.symbols
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "symbols", symbols)

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct operands of this expression."""
        return ()

    @cached_property
    def parts(self) -> tuple[Expr, ...]:
        """The operands, and the expressions inside the indirect indices of this node."""
        return (*self.operands, *index_operands(self))

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        """Return the same operation on other operands."""
        return self

    def substitute(self, values: Mapping[Atom, Index]) -> Expr:
        """Return the expression with index atoms replaced."""
        known = values if isinstance(values, _Substitution) else _Substitution(values)
        return rewrite(self, lambda e: _substitute_index(e, known), known.done)


class _Substitution(dict[Atom, Index]):
    """The atoms to replace, and the expressions rewritten so far, including those in indices."""

    def __init__(self, values: Mapping[Atom, Index]) -> None:
        super().__init__(values)
        self.done: dict[str, Expr] = {}


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """The element of a buffer at a logical index, which has one entry per dimension."""

    buffer: str
    index: tuple[Index, ...]

    def __post_init__(self) -> None:
        self._finish(self.buffer, *(i.key for i in self.index), of=self.index)


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A literal."""

    value: Number

    def __post_init__(self) -> None:
        # the bits distinguish -0.0 from 0.0; all NaNs are one constant, as in kernels
        is_number = isinstance(self.value, float) and not math.isnan(self.value)
        bits = struct.pack("<d", self.value).hex() if is_number else ""
        self._finish(type(self.value).__name__, str(self.value), bits)


@dataclass(frozen=True, eq=False)
class Parameter(Expr):
    """A number that the wrapper computes before it calls the kernel, such as 1/sqrt(s0)."""

    name: str

    def __post_init__(self) -> None:
        self._finish(self.name)


@dataclass(frozen=True, eq=False)
class IndexValue(Expr):
    """An index as int64 data."""

    index: Index

    def __post_init__(self) -> None:
        self._finish(self.index.key, of=(self.index,))


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """An operation from `OPERATIONS` on operands of the dtypes it takes."""

    name: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self._finish(self.name, *(a.key for a in self.args), of=self.args)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Call(self.dtype, self.name, operands)


@dataclass(frozen=True, eq=False)
class Guarded(Expr):
    """`body` if `condition` holds, else `other`. Only the chosen one is evaluated.

    So the loads of the other one may be out of bounds. Padding and concatenation rely on this.
    """

    condition: Expr
    body: Expr
    other: Expr

    def __post_init__(self) -> None:
        parts = (self.condition, self.body, self.other)
        self._finish(*(p.key for p in parts), of=parts)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.condition, self.body, self.other)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Guarded(self.dtype, *operands)


class Indirect(Atom):
    """An index that is itself data: the integer value of an expression, in [0, size).

    If `checked`, a negative value counts from the end as in Python, and a value out of range
    raises IndexError when the kernel runs.
    """

    __slots__ = ("checked", "expr", "size")

    def __init__(self, expr: Expr, size: Index, *, checked: bool) -> None:
        super().__init__(f"@{expr.key}[{size.key}]{'!' if checked else ''}")
        self.expr = expr
        self.size = size
        self.checked = checked

    @property
    def axes(self) -> frozenset[Axis]:
        return self.expr.axes

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols | self.size.symbols

    def bounds(self) -> Bounds[Atom]:
        return {}, (self.size - 1).terms

    def mentions(self, atoms: Container[Atom]) -> bool:
        return True  # conservative: the expression may mention them

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        expr, size = self.expr.substitute(values), self.size.substitute(values)
        return to_index(Indirect(expr, size, checked=self.checked))


def indirect_atoms(index: Index) -> tuple[Indirect, ...]:
    """Return the indirect indices that an index depends on, in a fixed order."""
    found = [atom for atom in index.atoms if isinstance(atom, Indirect)]
    return tuple(sorted(found, key=lambda atom: atom.key))


def rewrite(
    expr: Expr,
    change: Callable[[Expr], Expr],
    done: dict[str, Expr] | None = None,
    *,
    in_indices: bool = False,
) -> Expr:
    """Rebuild an expression from its leaves up. `change` is applied once to every node.

    With `in_indices`, also to those inside indirect indices. `done` caches the results by key.
    """
    done = {} if done is None else done
    stack = [expr]
    while stack:  # not recursive: a chain can be as long as the graph
        node = stack[-1]
        if node.key in done:
            stack.pop()
            continue
        missing = [o for o in (node.parts if in_indices else node.operands) if o.key not in done]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        operands = tuple(done[o.key] for o in node.operands)
        same = all(a is b for a, b in zip(operands, node.operands, strict=True))
        rebuilt = node if same else node.with_operands(operands)
        done[node.key] = change(_with_indices(rebuilt, done) if in_indices else rebuilt)
    return done[expr.key]


def _with_indices(node: Expr, done: Mapping[str, Expr]) -> Expr:
    """Return a node with the results of what is inside its indirect indices."""
    values: dict[Atom, Index] = {}
    for atom in (atom for index in indices(node) for atom in indirect_atoms(index)):
        changed = done[atom.expr.key]
        if changed is not atom.expr:
            values[atom] = to_index(Indirect(changed, atom.size, checked=atom.checked))
    return node.substitute(values) if values else node


def compute_in_order(
    expr: Expr, lookup: Callable[[Expr], Value | None], compute: Callable[[Expr], None]
) -> Value:
    """Return the value of an expression. Parts without a value are computed, operands before users.

    `compute` must make `lookup` find the value. A guarded expression needs only its condition
    first; `compute` handles its two branches.
    """
    stack = [expr]
    while stack:  # not recursive: a chain can be as long as the graph
        node = stack[-1]
        first = (node.condition,) if isinstance(node, Guarded) else node.operands
        missing = [o for o in first if lookup(o) is None]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if lookup(node) is None:
            compute(node)
    found = lookup(expr)
    assert found is not None
    return found


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every distinct node once, also those in indirect indices, operands before users."""
    seen: set[str] = set()
    stack = [expr]
    while stack:
        node = stack[-1]
        missing = [part for part in node.parts if part.key not in seen]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if node.key not in seen:
            seen.add(node.key)
            yield node


def index_operands(node: Expr) -> tuple[Expr, ...]:
    """Return the expressions inside the indirect indices of a node."""
    return tuple([atom.expr for index in indices(node) for atom in indirect_atoms(index)])


def indices(node: Expr) -> tuple[Index, ...]:
    """Return the indices written in a node itself."""
    if isinstance(node, Load):
        return node.index
    if isinstance(node, IndexValue):
        return (node.index,)
    return ()


def loads(expr: Expr) -> Iterator[Load]:
    """Return the distinct loads of an expression, including those inside indirect indices."""
    return (node for node in walk(expr) if isinstance(node, Load))


def _substitute_index(node: Expr, values: Mapping[Atom, Index]) -> Expr:
    if isinstance(node, Load):
        index = tuple(i.substitute(values) for i in node.index)
        same = all(new is old for new, old in zip(index, node.index, strict=True))
        return node if same else Load(node.dtype, node.buffer, index)
    if isinstance(node, IndexValue):
        changed = node.index.substitute(values)
        return node if changed is node.index else IndexValue(node.dtype, changed)
    return node
