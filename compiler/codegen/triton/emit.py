"""Writes expressions as Triton statements, and tracks along which dimensions values vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from tcdebug.compiler.codegen.kernels.flatten import FlatNode
from tcdebug.compiler.codegen.triton.scatter import scatter_update
from tcdebug.compiler.codegen.triton.text import (
    TYPES,
    TritonIndex,
    literal,
    operation,
)
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Axis, Index, to_index
from tcdebug.compiler.ir.arithmetic.index_text import render
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
    loads,
)
from tcdebug.compiler.ir.linear_parts import known_truth
from tcdebug.compiler.ir.operations import FLOATS

TOP, LOOP = 0, 1
"""The level of a statement: before the loops over a row, or inside one."""
BARRIER = "tl.debug_barrier()"
INNER = frozenset(("r", "k"))
"""The dimensions that a loop runs along. k is the dimension r of a tile that has it first."""


@dataclass(frozen=True)
class TritonValue:
    """A Triton value: its name, the dimensions along which it varies, and its level."""

    text: str
    dims: frozenset[str] = frozenset()
    level: int = TOP


NOWHERE = TritonValue("")


class TritonEmitter:
    """Writes the expressions of one kernel as statements, each value once.

    `lines[TOP]` and `lines[LOOP]` are the statements so far. `end_loop` ends a loop, and
    `overwrite` ends a kernel without rows. The emitters of one function share `names`, which
    numbers its variables.
    """

    def __init__(
        self, tile: Tile, storage: Mapping[str, str], names: Iterator[int] | None = None
    ) -> None:
        self.tile = tile
        self.lines: tuple[list[str], list[str]] = ([], [])
        self.looping = False
        self.eviction = ""  # the eviction policy of loads; empty for none
        self.outside = 1  # the floats outside of a mask, which are not used: to divide 0 is slow
        self.spread_loads: dict[frozenset[str], frozenset[str]] = {}  # dimensions -> wider ones
        self.values: dict[str, TritonValue] = {}  # nodes of the kernel that have been computed
        self.recompute: dict[str, FlatNode] = {}  # nodes that a later sweep recomputes
        self.read: set[str] = set()  # the memory that was loaded so far
        self._overwriting: list[tuple[str, str]] = []  # (memory, store) that `overwrite` writes
        self._storage = storage
        self._known: tuple[dict[tuple[str, str], TritonValue], ...] = ({}, {})
        self._guard = NOWHERE
        self._numbers = names or count(1)
        self._dims: dict[Atom, str] = {}
        self._linear: list[tuple[str, Index, tuple[Axis, ...]]] = []
        for group in tile.groups:
            self._dims.update(dict.fromkeys(group.axes, group.name))
            if len(group.axes) > 1:
                self._linear.append((group.name, linear(group.axes), group.axes))

    # -- statements -------------------------------------------------------------------------

    def add(self, line: str, level: int) -> None:
        """Append a statement at a level."""
        self.lines[level].append(line)

    def end_loop(self, opening: str) -> None:
        """End the current loop: append its statements, indented under `opening`."""
        body = self.lines[LOOP]
        self.lines[TOP].append(opening)
        self.lines[TOP].extend(f"    {line}" for line in body or ["pass"])
        body.clear()
        self._known[LOOP].clear()
        self.looping = False

    def name(self, stem: str = "t") -> str:
        """Return a new name."""
        return f"{stem}{next(self._numbers)}"

    def level(self, dims: frozenset[str], level: int = TOP) -> int:
        """Return the level at which a value with these dimensions is computed."""
        inside = level == LOOP or not dims.isdisjoint(INNER)
        return LOOP if self.looping and inside else TOP

    # -- values -----------------------------------------------------------------------------

    def value(self, expr: Expr) -> TritonValue:
        """Return the value of an expression, which is computed if necessary."""
        return compute_in_order(
            expr, self._lookup, lambda node: self._remember(node, self._compute(node))
        )

    def _context(self, node: Expr) -> str:
        """Return the guard outside of which a value is not valid; empty if it reads no memory."""
        return self._guard.text if self._guard.text and any(loads(node)) else ""

    def _lookup(self, node: Expr) -> TritonValue | None:
        context = self._context(node)
        for known in reversed(self._known):
            if found := known.get((node.key, context)):
                return found
        return None

    def _remember(self, node: Expr, value: TritonValue) -> None:
        level = value.level if self.looping else TOP
        self._known[level][node.key, self._context(node)] = value

    def _compute(self, node: Expr) -> TritonValue:
        match node:
            case Constant():
                return self._define(literal(node), frozenset(), TOP)
            case Guarded():
                return self._guarded(node)
            case Load(index=()):
                return self._from_kernel(node)
            case Load():
                return self._load(node)
            case IndexValue():
                return self._index_value(node)
            case Parameter():
                return self._define(
                    f"{self._storage[node.name]}.to({TYPES[node.dtype]})", frozenset(), TOP
                )
            case Call():
                operands = [self.value(o) for o in node.operands]
                dims = frozenset[str]().union(*(o.dims for o in operands))
                level = max(o.level for o in operands)
                return self._define(operation(node, [o.text for o in operands]), dims, level)
        raise TypeError(f"no such expression: {node!r}")

    def _define(self, text: str, dims: frozenset[str], level: int, stem: str = "t") -> TritonValue:
        name = self.name(stem)
        level = self.level(dims, level)
        self.add(f"{name} = {text}", level)
        return TritonValue(name, dims, level)

    def _from_kernel(self, node: Load) -> TritonValue:
        found = self.values.get(node.buffer)
        return found if found is not None else self.value(self.recompute[node.buffer].body)

    def _guarded(self, node: Guarded) -> TritonValue:
        """Both branches, each with its loads masked, and a choice between them.

        The condition of an unrolled point may be known, as on a diagonal.
        """
        if (known := known_truth(node.condition)) is not None:
            return self.value(node.body if known else node.other)
        condition = self.value(node.condition)
        outside = self._guard
        chosen: list[TritonValue] = []
        for test, body in ((condition.text, node.body), (f"({condition.text} == 0)", node.other)):
            self._guard = self._narrowed(outside, condition, test)
            chosen.append(self.value(body))
            self._guard = outside
        dims = condition.dims | chosen[0].dims | chosen[1].dims
        level = max(condition.level, *(c.level for c in chosen))
        text = f"tl.where({condition.text}, {chosen[0].text}, {chosen[1].text})"
        return self._define(text, dims, level)

    def _narrowed(self, outside: TritonValue, condition: TritonValue, test: str) -> TritonValue:
        """Return the conjunction of a test with the enclosing guard."""
        text = f"{outside.text} & {test}" if outside.text else test
        for known in reversed(self._known):
            if found := known.get((text, "")):
                return found
        level = max(condition.level, outside.level)
        guard = self._define(text, condition.dims | outside.dims, level, "g")
        self._known[level if self.looping else TOP][text, ""] = guard
        return guard

    # -- indices ----------------------------------------------------------------------------

    def _load(self, node: Load) -> TritonValue:
        self.read.add(node.buffer)
        address, dims, level = self.address(node.index[0])
        dims = self.spread_loads.get(dims, dims) | self._guard.dims
        level = max(level, self._guard.level)
        place = f"{self._storage[node.buffer]} + {self.spread(address, dims)}"
        mask = self.mask(dims, self._guard.text)
        masked = f", {mask}, {self.outside if node.dtype in FLOATS else 0}" if mask else ""
        whole = all(g.name in dims or g.block == 1 for g in self.tile.groups)
        kept = f', eviction_policy="{self.eviction}"' if self.eviction and whole else ""
        return self._define(f"tl.load({place}{masked}{kept})", dims, level)

    def _index_value(self, node: IndexValue) -> TritonValue:
        constant = node.index.constant
        if constant is not None:
            return self._define(f"tl.full([], {constant}, tl.int64)", frozenset(), TOP)
        text, dims, level = self.address(node.index, data=True)
        return self._define(f"({text}).to(tl.int64)", dims, level)

    def address(self, index: Index, *, data: bool = False) -> tuple[str, frozenset[str], int]:
        """Return an index as text, the dimensions along which it varies, and its level."""
        places = {
            atom.key: self._place_of(atom)
            for atom in sorted(index.atoms, key=lambda a: a.key)
            if isinstance(atom, Indirect)
        }
        found = [v for v in places.values()]
        dims = frozenset(self._dims[a] for a in _direct_axes(index) if a in self._dims)
        dims = dims.union(*(v.dims for v in found))
        level = max((v.level for v in found), default=TOP)
        texts = TritonIndex({key: v.text for key, v in places.items()}, data=data)
        return self._rendered(index, texts, data=data), dims, level

    def _rendered(self, index: Index, texts: TritonIndex, *, data: bool) -> str:
        """Return an index as text.

        Row-major groups of axes use the index of the group, undivided.
        """
        extra = ""
        for name, whole, axes in self._linear:
            step = index.coefficient(axes[-1])
            if step is None or step.constant == 0 or not step.axes.isdisjoint(axes):
                continue
            rest = index - whole * step
            if rest.axes.isdisjoint(axes):
                widened = ".to(tl.int64)" if data else ""
                extra += f"{name}index{widened} * ({render(step, texts)}) + "
                index = rest
        if index == ZERO and extra:
            return extra.removesuffix(" + ")
        return extra + render(index, texts)

    def _place_of(self, atom: Indirect) -> TritonValue:
        context = self._guard.text
        for known in reversed(self._known):
            if found := known.get((atom.key, context)):
                return found
        value = self.value(atom.expr)
        size, size_dims, size_level = self.address(atom.size)
        dims, level = value.dims | size_dims, max(value.level, size_level)
        place = self._define(f"{value.text}.to(INDEX)", dims, level, "p")
        if atom.checked:
            wrapped = f"tl.where({place.text} < 0, {place.text} + {size}, {place.text})"
            place = self._define(wrapped, dims, level, "p")
            inside = f"({place.text} >= 0) & ({place.text} < {size})"
            tested = dims | self._guard.dims
            mask = self.mask(tested, self._guard.text)
            test = f"({inside}) | (({mask}) == 0)" if mask else inside
            at = self.level(tested, max(level, self._guard.level))
            self.add(f'tl.device_assert({test}, "index out of range")', at)
        self._known[place.level if self.looping else TOP][atom.key, context] = place
        return place

    # -- masks and shapes -------------------------------------------------------------------

    def mask(self, dims: frozenset[str], guard: str = "") -> str:
        """Return the mask of the elements that exist, for these dimensions; empty if all exist."""
        tests = [f"{g.name}mask" for g in self.tile.groups if g.name in dims and not g.exact]
        return " & ".join([*tests, *([guard] if guard else [])])

    def shape(self, dims: frozenset[str]) -> str:
        """Return the shape of a value with these dimensions."""
        sizes = [f"{g.name.upper()}BLOCK" if g.name in dims else "1" for g in self.tile.groups]
        return f"[{', '.join(sizes)}]"

    def spread(self, address: str, dims: frozenset[str]) -> str:
        """Return an address, broadcast to a value with these dimensions."""
        if not dims:
            return f"({address})"
        if address.lstrip("-").isdigit():
            return f"tl.full({self.shape(dims)}, {address}, INDEX)"
        return f"tl.broadcast_to({address}, {self.shape(dims)})"

    def store(self, node: FlatNode, value: TritonValue) -> None:
        """Store the value of a node in its buffer, or over other memory when all reads are done.

        Triton may divide a tile among threads for a store in another way than for a load, and a
        small tile is held by several warps. A barrier therefore separates the loads of memory from
        the stores over it. Without rows, these stores wait for `overwrite`, so that one suffices.
        """
        dims = self.tile.every if node.inside and not node.reduces else self.tile.rows
        exists = self.value(node.exists).text if node.exists is not None else ""
        address, _, level = self.address(node.address)
        place = f"{self._storage[node.name]} + {self.spread(address, dims)}"
        mask = self.mask(dims, exists)
        masked = f", {mask}" if mask else ""
        streamed = ', cache_modifier=".cs"' if self.eviction else ""
        text = f"tl.store({place}, {value.text}{masked}{streamed})"
        self._written(node, text, self.level(dims, max(level, value.level)))

    def store_joined(self, nodes: Sequence[FlatNode]) -> None:
        """Store the values of nodes that lie beside each other in memory, the first one first."""
        every = self.tile.every
        first, (address, _, _) = nodes[0], self.address(nodes[0].address)
        values = [self.spread(self.values[n.name].text, every) for n in nodes]
        places = f"library.joined_places({self.spread(address, every)}, {len(nodes)})"
        mask = self.mask(every)
        masked = f", tl.expand_dims({self.spread(mask, every)}, 2)" if mask else ""
        joined = f"library.joined{len(nodes)}({', '.join(values)})"
        self._written(
            first, f"tl.store({self._storage[first.name]} + {places}, {joined}{masked})", TOP
        )

    def _written(self, node: FlatNode, text: str, level: int) -> None:
        """Append the text of a store."""
        if node.into and not any(g.name == "r" for g in self.tile.groups):
            self._overwriting.append((node.into, text))
            return
        if node.into in self.read:
            self.add(BARRIER, level)
        self.add(text, level)

    def overwrite(self) -> None:
        """Write the stores that wait until the program has loaded what they overwrite."""
        if any(memory in self.read for memory, _ in self._overwriting):
            self.add(BARRIER, TOP)
        for _, text in self._overwriting:
            self.add(text, TOP)

    def scatter(self, node: FlatNode) -> None:
        """Store a value at an indirect index, or combine it atomically with the element there."""
        update = scatter_update(node.body, node.into)
        assert update is not None  # otherwise `unwritable` rejects the node
        every = self.tile.every
        value = self.value(update.value)
        guard = ""
        if update.unless is not None:
            guard = f"({self.value(update.unless).text} == 0)"
        address, _, _ = self.address(node.address)
        place = f"{self._storage[node.name]} + {self.spread(address, every)}"
        operands = f"{place}, {self.spread(value.text, every)}"
        mask = self.mask(every, guard)
        masked = f", mask={mask}" if mask else ""
        if update.operation:
            text = f'tl.atomic_{update.operation}({operands}{masked}, sem="relaxed")'
        else:
            text = f"tl.store({operands}{masked})"
        self.add(text, TOP)


def linear(axes: tuple[Axis, ...]) -> Index:
    """Return the position of a point in row-major order."""
    total = ZERO
    for axis in axes:
        total = total * axis.size + to_index(axis)
    return total


def _direct_axes(index: Index) -> set[Axis]:
    """Return the loop variables in an index, without those inside indirect indices."""
    return {atom for atom in index.atoms if isinstance(atom, Axis)}
