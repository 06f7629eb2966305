"""Writes expressions as C++ statements, each in the outermost possible loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.cpp.emitters.text import (
    PLAIN,
    TYPES,
    Block,
    CppIndex,
    cast,
    counts,
    element,
    fits_int32,
    literal,
    operation,
)
from tcdebug.compiler.codegen.halves.half_pairs import PAIR
from tcdebug.compiler.codegen.halves.half_values import as_float, rounds
from tcdebug.compiler.codegen.kernels.flatten import FlatNode, reads_apart
from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Axis, Index
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.arithmetic.order import is_positive
from tcdebug.compiler.ir.expr import (
    Call,
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Parameter,
    compute_in_order,
    indices,
)
from tcdebug.compiler.ir.operations import COMPARISONS


@dataclass(frozen=True)
class Place:
    """A value in C++: its text, and the depth of the loops at which it is known."""

    text: str
    depth: int


@dataclass(frozen=True)
class PointRun:
    """The points of a loop whose neighbours along an axis can be accessed together."""

    axis: Axis
    first: Index
    count: str
    most: str
    place: str
    """The place of the current point among them."""


INNERMOST = 1 << 20  # the depth of a value that exists only in the innermost loop


class CppEmitter:
    """Writes expressions into the open loops of one kernel.

    `blocks[d]` is the body of the loop at depth d; depth 0 is the whole kernel. `depths` gives the
    depth at which the variable of an axis is declared.
    """

    def __init__(self, storage: Mapping[str, str]) -> None:
        self.blocks: list[Block] = []
        self.depths: dict[Axis, int] = {}
        self.values: dict[str, Place] = {}  # nodes of the kernel that have been computed
        self.kept: dict[str, tuple[str, Index]] = {}  # nodes of earlier sweeps: pointer, address
        self.recompute: dict[str, FlatNode] = {}  # nodes that are recomputed where needed
        self.halves: dict[str, FlatNode] = {}  # nodes of a half type, which others read as floats
        self.changing: set[str] = set()  # buffers that the loops themselves store to
        self.counted: Axis | None = None  # the axis of points of which only some count
        self.parts: list[FlatNode] = []  # nodes whose rows are stored after their loop
        self.compared: dict[Atom, Index] = {}  # axes that have another variable in conditions
        self.part = 0  # the depth of a part of a loop: nodes differ between parts
        self.conversions = PLAIN  # the conversions that functions make
        self.missed = ""  # the variable that notes an index out of range in the innermost loop
        self._storage = storage
        self._known: list[dict[str, Place]] = []
        self._floors: list[int] = []  # for each block, the lowest depth for its values
        self._guards = 0
        self._count = 0

    def fresh(self, name: str) -> str:
        """Return a name for a variable that no other one has."""
        self._count += 1
        return f"{name}{self._count - 1}"

    # -- loops ------------------------------------------------------------------------------

    def enter(
        self, opening: str = "", axes: Iterable[Axis] = (), *, conditional: bool = False
    ) -> Block:
        """Open a block inside the innermost one. The variables of `axes` exist from here on.

        Values are not hoisted out of a `conditional` block, nor out of a loop that may have no
        iterations: they might read out of bounds or divide by zero.
        """
        block = Block(opening)
        floor = self._floors[-1] if self._floors else 0
        self.blocks.append(block)
        self._known.append({})
        if conditional:
            floor = len(self.blocks) - 1
        for axis in axes:
            self.depths[axis] = len(self.blocks) - 1
            if not is_positive(axis.size):
                floor = len(self.blocks) - 1
        self._floors.append(floor)
        return block

    def define(self, axis: Axis, value: str) -> None:
        """Give a variable its value for each iteration of the innermost loop."""
        self.innermost.add(f"const int64_t {axis.name} = {value};")
        self.depths[axis] = len(self.blocks) - 1

    def collapse(self, axes: Iterable[Axis]) -> None:
        """Treat the open loops over these axes as one loop, with no statements between them."""
        depth = len(self.blocks) - 1
        self.depths.update(dict.fromkeys(axes, depth))
        if self._floors[-1]:
            self._floors[-1] = depth

    def run(self, run: PointRun) -> None:
        """Note the points of the loop that was opened last."""

    def leave(self, pragma: str = "") -> Block:
        """Close the innermost block and append it to the enclosing one, if there is one.

        It is appended only now, so that hoisted values come before it.
        """
        block = self.blocks.pop()
        self._known.pop()
        self._floors.pop()
        if not self.blocks:
            return block
        if pragma:
            self.innermost.add(pragma)
        self.innermost.items.append(block)
        return block

    @property
    def innermost(self) -> Block:
        """The innermost open block."""
        return self.blocks[-1]

    # -- values -----------------------------------------------------------------------------

    def value(self, expr: Expr) -> Place:
        """Return the value of an expression, which is computed if necessary."""
        return compute_in_order(
            expr, self._lookup, lambda node: self._remember(node, self._compute(node))
        )

    def _lookup(self, node: Expr) -> Place | None:
        if isinstance(node, Constant):
            return Place(literal(node), 0)
        for known in reversed(self._known):
            if node.key in known:
                return known[node.key]
        return None

    def _remember(self, node: Expr, place: Place) -> None:
        self._known[place.depth][node.key] = place

    def _compute(self, node: Expr) -> Place:
        match node:
            case Guarded():
                return self._guarded(node)
            case Load(index=()):
                place = self._from_kernel(node)
                return Place(place.text, min(max(place.depth, self.part), len(self.blocks) - 1))
        depth = max((self._lookup_depth(o) for o in node.operands), default=0)
        text = CppIndex(self._places(node))
        for index in indices(node):
            depth = max(depth, self._index_depth(index))
        if isinstance(node, Load) and node.buffer in self.changing:
            depth = INNERMOST
        return self._define(node, self._text(node, text), depth)

    def _lookup_depth(self, node: Expr) -> int:
        place = self._lookup(node)
        assert place is not None
        return place.depth

    def _text(self, node: Expr, text: CppIndex) -> str:
        match node:
            case Load():
                pointer = self._storage[node.buffer]
                loaded = element(f"{pointer}[{render(node.index[0], text)}]", node.dtype)
                alone = self.counted is None or self.counted not in node.axes
                return loaded if alone else f"counts[l] ? {loaded} : ({TYPES[node.dtype]})0"
            case IndexValue():
                return f"(int64_t)({render(node.index.substitute(self.compared), text)})"
            case Parameter():
                return f"({TYPES[node.dtype]}){self._storage[node.name]}"
            case Call(name="where" | "masked"):
                return self._choice(node)
            case Call(name="eq" | "ne"):
                return self._equal(node)
            case Call():
                texts = [self.value(o).text for o in node.operands]
                return operation(node, texts, conversions=self.conversions)
        raise TypeError(f"no such expression: {node!r}")

    def _equal(self, node: Call) -> str:
        """Return whether two values are equal or differ.

        An index that fits in 32 bits is compared as such with an integer that is known outside of
        its loop, as a class with the class of a row: vectors have twice as many of them.
        """
        places = [self.value(o) for o in node.operands]
        texts = [p.text for p in places]
        for index, other in ((0, 1), (1, 0)):
            known = node.args[other].dtype == torch.int64 and not fits_int32(node.args[other])
            if known and counts(node.args[index]) and places[other].depth < places[index].depth:
                texts[index] = f"(int32_t){texts[index]}"
                texts[other] = self._as_count(node.args[other], places[other])
        return operation(node, texts)

    def _as_count(self, value: Expr, place: Place) -> str:
        """Return an integer in 32 bits, or -1 if it is negative or does not fit."""
        key = f"count: {value.key}"
        known = self._known[place.depth].get(key)
        if known is None:
            known = Place(self.fresh("n"), place.depth)
            text = f"const int32_t {known.text} = count_or_none({place.text});"
            self.blocks[place.depth].add(text)
            self._known[place.depth][key] = known
        return known.text

    def _choice(self, node: Call) -> str:
        """Return a choice of two values.

        g++ 12 does not vectorize one by an invariant of the loop.
        """
        condition, *values = (self.value(o) for o in node.operands)
        texts = [condition.text, *(v.text for v in values)]
        if node.dtype != torch.bool and condition.depth < max(v.depth for v in values):
            texts[0] = self._mask(node.args[0], condition, node.dtype)
            return f"blend<{TYPES[node.dtype]}>({', '.join(texts)})"
        return operation(node, texts)

    def _mask(self, condition: Expr, place: Place, dtype: torch.dtype) -> str:
        """Return the mask of a condition for elements of a dtype, where the condition is known."""
        key = f"mask of {dtype.itemsize} bytes: {condition.key}"
        known = self._known[place.depth].get(key)
        if known is None:
            name = self.fresh("m")
            text = f"const auto {name} = mask_of<{TYPES[dtype]}>({place.text});"
            self.blocks[place.depth].add(text)
            known = Place(name, place.depth)
            self._known[place.depth][key] = known
        return known.text

    def _define(self, node: Expr, text: str, depth: int) -> Place:
        depth = self._clamped(depth)
        name = self.fresh("t")
        self.blocks[depth].add(f"const {TYPES[node.dtype]} {name} = {text};")
        return Place(name, depth)

    def _from_kernel(self, node: Load) -> Place:
        if (half := self.halves.get(node.buffer)) is not None and half.dtype != node.dtype:
            return self._half_from_kernel(node, half)
        if node.buffer in self.values:
            return self.values[node.buffer]
        if node.buffer in self.kept:
            pointer, address = self.kept[node.buffer]
            text = element(f"{pointer}[{render(address, CppIndex())}]", node.dtype)
            return self._define(node, text, self._index_depth(address))
        return self.value(self.recompute[node.buffer].body)

    def _half_from_kernel(self, node: Load, half: FlatNode) -> Place:
        """Return the value of a node of a half type, as a float."""
        wide = as_float(half.body)
        computed = half.name in self.values
        if not computed and half.name not in self.kept:
            return self.value(wide)
        # a float16 is converted back in fewer steps than its float is rounded again
        back = rounds(wide) and half.dtype == torch.float16
        sources = (wide, *wide.operands) if rounds(wide) else (wide,)
        if computed and not back and any(map(self._lookup, sources)):
            return self.value(wide)
        stored = self._from_kernel(Load(half.dtype, half.name, ()))
        return self._define(node, cast(stored.text, half.dtype, node.dtype), stored.depth)

    def _clamped(self, depth: int) -> int:
        """Return the depth for a new value. Values inside a guard are not hoisted out of it."""
        if self._guards:
            return len(self.blocks) - 1
        return min(max(depth, self._floors[-1]), len(self.blocks) - 1)

    def _index_depth(self, index: Index) -> int:
        """Return the depth at which an index is known.

        Its indirect indices must have been computed.
        """
        depth = 0
        for atom in index.atoms:
            if isinstance(atom, Axis):
                depth = max(depth, self.depths[atom])
            elif isinstance(atom, Indirect):
                depth = max(depth, self._place_of(atom).depth)
        return depth

    # -- indirect indices -------------------------------------------------------------------

    def _places(self, node: Expr) -> dict[str, str]:
        return {
            atom.key: self._place_of(atom).text
            for index in indices(node)
            for atom in sorted(index.atoms, key=lambda a: a.key)
            if isinstance(atom, Indirect)
        }

    def _place_of(self, atom: Indirect) -> Place:
        for known in reversed(self._known):
            if atom.key in known:
                return known[atom.key]
        value = self.value(atom.expr)
        inner = {a.key: self._place_of(a).text for a in atom.size.atoms if isinstance(a, Indirect)}
        size = render(atom.size, CppIndex(inner))
        depth = max(value.depth, self._index_depth(atom.size))
        depth = self._clamped(depth)
        name = self.fresh("p")
        text = f"(int64_t){value.text}"
        if atom.checked:
            inside = self._guards or depth == len(self.blocks) - 1
            found = self.missed if self.missed and inside else "status"
            text = f"checked_place({value.text}, {size}, {found})"
        self.blocks[depth].add(f"const int64_t {name} = {text};")
        if atom.checked and self.changing:
            self.blocks[depth].add(f"const bool {name}_good = found == TCD_OK;")
        place = Place(name, depth)
        self._known[depth][atom.key] = place
        return place

    # -- guards -----------------------------------------------------------------------------

    def _guarded(self, node: Guarded) -> Place:
        """Return an if statement with the two branches."""
        condition = self._condition(node.condition, narrowed=not reads_apart(node, self.recompute))
        name, branches = self.fresh("t"), []
        here = self.innermost
        depth = len(self.blocks) - 1
        here.add(f"{TYPES[node.dtype]} {name};")
        for opening, value in ((f"if ({condition})", node.body), ("else", node.other)):
            self._guards += 1
            self.enter(opening).add(f"{name} = {self.value(value).text};")
            self.leave()
            branches.append(here.items.pop())
            self._guards -= 1
        here.items += branches  # after what both of them need
        return Place(name, depth)

    def _condition(self, node: Expr, *, narrowed: bool) -> str:
        """Return a condition, with indices compared in 32 bits where they fit if `narrowed`."""
        if narrowed or not isinstance(node, Call):
            return self.value(node).text
        if node.name in COMPARISONS:
            return operation(node, [self.value(o).text for o in node.operands], narrowed=False)
        if all(operand.dtype == torch.bool for operand in node.operands):
            return operation(node, [self._condition(o, narrowed=False) for o in node.operands])
        return self.value(node).text

    def store_parts(self, axis: Axis, points: int) -> None:
        """Store the rows of nodes, which are the last points of blocks."""
        for node in self.parts:
            first = render(node.address.substitute({axis: ZERO}), CppIndex())
            size = render(axis.size, CppIndex())
            last = f"row_{node.name} + {points} - {size}, {size} * sizeof({TYPES[node.dtype]})"
            self.innermost.add(f"__builtin_memcpy({self._storage[node.name]} + {first}, {last});")
        self.parts = []

    def store(self, node: FlatNode, value: Place) -> None:
        """Store the value of a node in its buffer, at the current point of the loops.

        In memory that is updated in place, nothing is stored after an index was out of range.
        """
        if self.counted is not None:
            self.parts.append(node)
            self.innermost.add(f"row_{node.name}[l] = {value.text};")
            return
        text = CppIndex(self._places(IndexValue(torch.int64, node.address)))
        checked = (a for a in node.address.atoms if isinstance(a, Indirect) and a.checked)
        good = " && ".join(sorted(f"{self._place_of(a).text}_good" for a in checked))
        memory = f"{self._storage[node.name]}[{render(node.address, text)}]"
        pair = node.dtype == PAIR
        line = f"store_pair({memory}, {value.text});" if pair else f"{memory} = {value.text};"
        self.innermost.add(f"if ({good}) {line}" if good else line)
