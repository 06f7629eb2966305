"""The template of a matrix product: a loop over tiles of the operands, then an epilogue.

The tile of a program is (y, x). Operands are tiles (y, r) and (k, x), where k is r as a column.
The epilogue is written by the emitter of all other kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.triton.emit import INNER, LOOP, TOP, TritonEmitter, TritonValue
from tcdebug.compiler.codegen.triton.idioms import with_idioms
from tcdebug.compiler.codegen.triton.kernel import TEXTS, lines_of_origin, places
from tcdebug.compiler.codegen.triton.text import TYPES
from tcdebug.compiler.codegen.triton.tiles import MULTIPROCESSORS, Tile, TileDimension, power_of_two
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Call, Expr, Load
from tcdebug.compiler.ir.graph import Reduction
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.schedule.kernel import Kernel, Template

RESULT = frozenset(("y", "x"))
SMALLEST = 16
"""The smallest size of each dimension of an operand of tensor cores."""
CUTS = (
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 32, 128, 4, 4),
    (32, 64, 128, 4, 4),
    (16, 128, 128, 4, 4),
    (16, 64, 128, 4, 4),
    (16, 32, 256, 4, 3),
    (16, 16, 256, 4, 4),
)
"""Rows, columns, depth in half-precision elements, warps and stages. Large tiles, of which one or
two fit a multiprocessor, are for products limited by arithmetic, narrow ones for few rows."""
MOST = 6
"""The most cuts that are tried for one product."""

STEP = TileDimension("r", (), SMALLEST)
"""The default depth of a tile."""


@dataclass(frozen=True)
class ProductTile(Tile):
    """The tile of a product. `groups` are the dimensions of the result, `depth` that of the sum."""

    depth: TileDimension = STEP
    together: int = 8
    precision: str = "ieee"

    @property
    def constants(self) -> dict[str, int]:
        return {**super().constants, "RBLOCK": self.depth.block, "TOGETHER": self.together}


def tile_of(kernel: Kernel) -> ProductTile:
    """Return the tile of a kernel with a template."""
    node, template = kernel.nodes[0], kernel.template
    assert isinstance(node, Reduction) and template is not None
    along = {n: node.index[d].axes for n, d in (("y", -2), ("x", -1))}
    axes = {n: tuple(a for a in kernel.outer if a in found) for n, found in along.items()}
    return ProductTile(
        (
            TileDimension("y", axes["y"], template.rows),
            TileDimension("x", axes["x"], template.columns),
        ),
        tuple(a for a in kernel.outer if a not in (*axes["y"], *axes["x"])),
        template.warps,
        stages=template.stages,
        depth=TileDimension("r", kernel.inner, template.depth),
        together=template.together,
        precision=template.precision,
    )


def templates(kernel: Kernel, dtype: torch.dtype, sizes: Mapping[str, int]) -> list[Template]:
    """Return the templates to try for a product, those that fit its sizes best first.

    `sizes` gives the values of symbols. In float32, steps are half as deep. If torch does not allow
    TF32, tensor cores are not used, and large tiles do not fit the registers.
    """
    node = kernel.nodes[0]
    assert isinstance(node, Reduction)
    rows, columns = (estimate(s, sizes) for s in node.out.size[-2:])
    batch = estimate(product(node.out.size[:-2]), sizes)
    wide = dtype not in HALVES
    # reading allow_tf32 raises in a program that has set fp32_precision
    ieee = wide and torch.backends.cuda.matmul.fp32_precision != "tf32"
    found: list[tuple[float, Template]] = []
    for y, x, r, warps, stages in CUTS:
        y = max(SMALLEST, min(y, power_of_two(rows)))
        x = max(SMALLEST, min(x, power_of_two(columns)))
        r = max(SMALLEST, r // 2 if wide else r)
        if ieee and y * x > 64 * 64:
            continue
        template = Template(y, x, r, warps, stages, "ieee" if ieee else "tf32" if wide else "")
        wasted = -(-rows // y) * y * -(-columns // x) * x / max(1, rows * columns)
        programs = -(-rows // y) * -(-columns // x) * batch
        idle = max(1.0, MULTIPROCESSORS / max(1, programs))
        again = (1 / y + 1 / x) * 32  # the cost of loading operands per element of the result
        if template not in [known for _, known in found]:
            found.append((wasted * idle * (1 + again), template))
    ranked = sorted(found, key=lambda pair: pair[0])
    return [template for _, template in ranked[:MOST]]


class ProductWriter:
    """Writes one kernel that has a template."""

    def __init__(
        self,
        kernel: FlatKernel,
        tile: ProductTile,
        storage: Mapping[str, str],
        arguments: Sequence[str],
    ) -> None:
        self.kernel = with_idioms(kernel)
        self.tile = tile
        self.storage = storage
        self.arguments = arguments
        self._names = count(1)
        self._read: set[str] = set()  # the memory that the operands load

    def write(self) -> str:
        """Return the source of the function."""
        body = [*self._where(), *self._sums(), *self._epilogue()]
        constants = ", ".join(f"{c}: tl.constexpr" for c in ("INDEX", *self.tile.constants))
        given = ", ".join([*self.arguments, constants])
        lines = "\n".join(f"    {line}" for line in (*lines_of_origin(self.kernel), *body))
        return f"@triton.jit\ndef {self.kernel.name}({given}):\n{lines}\n"

    def _where(self) -> list[str]:
        """Statements that compute the tile of the result of a program."""
        y, x = self.tile.groups
        tiles = ", ".join(f"tl.cdiv({_text(g.size)}, {g.name.upper()}BLOCK)" for g in (y, x))
        found = f"library.beside(program, {tiles}, TOGETHER)"
        lines = ["program = tl.program_id(0).to(INDEX)", f"ytile, xtile, program = {found}"]
        for group, along in ((y, "[:, None]"), (x, "[None, :]")):
            block = f"{group.name.upper()}BLOCK"
            start = f"{group.name}tile * {block}"
            lines += _indices(group, f"{start} + tl.arange(0, {block}){along}")
        return [*lines, *places(self.tile.alone, "program")]

    def _sums(self) -> list[str]:
        """The loop over the common dimension, preceded by the values that are constant in it."""
        y, x = self.tile.groups
        r = self.tile.depth
        (inner,) = r.axes
        down = Axis("k0", inner.size)
        values: dict[Atom, Index] = {inner: to_index(down)}
        k = TileDimension("k", (down,), r.block)
        left, right = _operands(self.kernel.nodes[0].body)
        sides = (self._operand(left, y, r), self._operand(right.substitute(values), k, x))
        texts = [text for _, text in sides]
        step = [
            *_indices(r, "roffset + tl.arange(0, RBLOCK)[None, :].to(INDEX)"),
            *_indices(k, "roffset + tl.arange(0, RBLOCK)[:, None].to(INDEX)"),
            *(line for emitter, _ in sides for line in emitter.lines[LOOP]),
        ]
        total = f"total, out_dtype=tl.float32{self._precision(left)}"
        step.append(f"total = tl.dot({', '.join(texts)}, {total})")
        return [
            "KBLOCK: tl.constexpr = RBLOCK",
            *(line for emitter, _ in sides for line in emitter.lines[TOP]),
            "total = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
            f"for roffset in range(0, {_text(r.size)}, RBLOCK):",
            *(f"    {line}" for line in step),
        ]

    def _precision(self, operand: Expr) -> str:
        return f', input_precision="{self.tile.precision}"' if operand.dtype not in HALVES else ""

    def _operand(
        self, operand: Expr, first: TileDimension, second: TileDimension
    ) -> tuple[TritonEmitter, str]:
        """Return a tile of an operand, with zeros outside of the operand."""
        tile = Tile((first, second), self.tile.alone, self.tile.warps)
        emitter = TritonEmitter(tile, self.storage, self._names)
        emitter.looping, emitter.outside = True, 0
        whole = frozenset((first.name, second.name))
        varying = frozenset(g.name for g in (first, second) if operand.axes & set(g.axes))
        if not varying.isdisjoint(INNER):  # Triton does not pipeline a load that is broadcast
            emitter.spread_loads[varying] = whole
        value = emitter.value(operand)
        self._read |= emitter.read
        name = emitter.name("o")
        spread = f"tl.broadcast_to({value.text}, {emitter.shape(whole)})"
        emitter.add(f"{name} = {spread}", LOOP)
        masked = isinstance(operand, Load) and value.dims == whole
        steps = first if first.name == "k" else second
        if not masked and not steps.exact:
            zero = f"tl.full([], 0, {TYPES[operand.dtype]})"
            emitter.add(f"{name} = tl.where({steps.name}mask, {name}, {zero})", LOOP)
        return emitter, name

    def _epilogue(self) -> list[str]:
        """Statements that compute the epilogue and store the results."""
        emitter = TritonEmitter(
            Tile(self.tile.groups, self.tile.alone, 1), self.storage, self._names
        )
        emitter.read |= self._read
        for position, node in enumerate(self.kernel.nodes):
            point = replace(node, inside=True, kind="")
            value = emitter.value(point.body) if position else TritonValue("total", RESULT)
            emitter.values[node.name] = value
            if node.name in self.kernel.stored:
                emitter.store(point, value)
        emitter.overwrite()
        return emitter.lines[TOP]


def _operands(body: Expr) -> tuple[Expr, Expr]:
    """Return the two factors.

    Half-precision ones stay unconverted: tensor cores accumulate in float32.
    """
    assert isinstance(body, Call) and body.name == "mul"
    left, right = body.args
    narrow = [e.args[0] for e in (left, right) if isinstance(e, Call) and e.name == "cast"]
    if len(narrow) == 2 and narrow[0].dtype == narrow[1].dtype and narrow[0].dtype in HALVES:
        return narrow[0], narrow[1]
    return left, right


def _indices(group: TileDimension, whole: str) -> list[str]:
    """Statements that compute the index along a group, its mask, and its axes."""
    name = group.name
    lines = [f"{name}index = {whole}"]
    if not group.exact:
        lines.append(f"{name}mask = {name}index < {_text(group.size)}")
    return [*lines, *places(group.axes, f"{name}index")]


def _text(index: Index) -> str:
    return render(index, TEXTS)
