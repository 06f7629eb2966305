"""Writes the Triton kernels of a graph as one Python module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from tcdebug.compiler.codegen.kernels.call import KernelCall, describe
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, flatten
from tcdebug.compiler.codegen.kernels.loop_order import by_strides
from tcdebug.compiler.codegen.kernels.sharing import numbered_text, shared
from tcdebug.compiler.codegen.kernels.unroll import Unrolled, unrolled_choices
from tcdebug.compiler.codegen.kernels.unrolled_rows import unrolled_rows
from tcdebug.compiler.codegen.triton.accumulate import KINDS
from tcdebug.compiler.codegen.triton.combo import with_combos
from tcdebug.compiler.codegen.triton.kernel import TritonKernelWriter
from tcdebug.compiler.codegen.triton.point_tiles import point_tile
from tcdebug.compiler.codegen.triton.product import ProductTile, ProductWriter, tile_of
from tcdebug.compiler.codegen.triton.row_tiles import row_tile, runs_along_outer
from tcdebug.compiler.codegen.triton.scatter import scatter_update
from tcdebug.compiler.codegen.triton.text import SIGNATURES, WRITABLE
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Index, product
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.expr import Call, walk
from tcdebug.compiler.ir.graph import Buffer, LoopNode, Pointwise, Scatter
from tcdebug.compiler.schedule.kernel import Kernel

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
from tcdebug.compiler.codegen.triton import library
"""
NARROW = 2**31 - 1
"""The largest index that fits int32."""


def unwritable(node: LoopNode) -> str:
    """Return why a node cannot be written in Triton; empty if it can."""
    if not isinstance(node, Pointwise) and node.kind not in KINDS:
        return f"{node.kind} in Triton"
    if isinstance(node, Scatter):
        if torch.are_deterministic_algorithms_enabled():
            return "a scatter in nondeterministic order"
        if scatter_update(node.body, node.into) is None:
            return "a scatter with an operation that is not atomic"
    calls = {e.name for e in walk(node.body) if isinstance(e, Call)}
    return ", ".join(sorted(calls - WRITABLE))


@dataclass(frozen=True)
class TritonSource:
    """The module of the kernels, and each kernel by name."""

    text: str
    kernels: Mapping[str, TritonKernel]
    """The kernels that are launched."""
    parts: Mapping[str, TritonKernel] = field(default_factory=dict)
    """The kernels that combo kernels run."""
    language: str = "triton"
    suffix: str = "py"

    @property
    def calls(self) -> dict[str, KernelCall]:
        """Name of a kernel of the schedule -> its call."""
        launched = {n: k.call for n, k in self.kernels.items() if not k.combines}
        return launched | {name: kernel.call for name, kernel in self.parts.items()}


def write_triton(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
) -> TritonSource:
    """Write kernels as one Triton module."""
    written = {k.name: _write(k, buffers, gate) for k in kernels}
    calls = shared(
        {name: kernel.call for name, kernel in written.items()},
        gate,
        lambda call: _compiled(written[call.kernel.name]),
    )
    found = {name: replace(kernel, call=calls[name]) for name, kernel in written.items()}
    launched, parts = with_combos(found)
    return TritonSource(module_text([*parts.values(), *launched.values()]), launched, parts)


def _compiled(kernel: TritonKernel) -> str:
    """Return a text that determines the machine code of a kernel and its device."""
    tile = kernel.tile
    launched = (tile.constants, tile.warps, tile.stages, kernel.checked, kernel.call.kernel.device)
    return f"{canonical(kernel)}\n{launched}"


def module_text(kernels: Iterable[TritonKernel]) -> str:
    """Return the source of the module that kernels are compiled from."""
    return "\n\n".join([HEADER, *(k.call.source for k in kernels if k.call.source)])


def alone(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """Return a single kernel, written with every unit allowed."""
    return _write(kernel, buffers, Gate())


def canonical(kernel: TritonKernel) -> str:
    """The source of a kernel without parts that do not matter: names and the user's lines."""
    return "\n".join([numbered_text(kernel.call, "#"), *kernel.signature.values()])


def retiled(kernel: TritonKernel, tile: Tile) -> TritonKernel:
    """Return the kernel written for another tile."""
    source = _text(kernel.flat, tile, kernel.call.storage(), kernel.signature)
    return replace(kernel, call=replace(kernel.call, source=source), tile=tile)


def _text(
    flat: FlatKernel,
    tile: Tile,
    storage: Mapping[str, str],
    signature: Mapping[str, str],
    *,
    part: bool = False,
) -> str:
    if isinstance(tile, ProductTile):
        return ProductWriter(flat, tile, storage, list(signature)).write()
    return TritonKernelWriter(flat, tile, storage, list(signature), part=part).write()


def _write(kernel: Kernel, buffers: Mapping[str, Buffer], gate: Gate) -> TritonKernel:
    ordered = by_strides(kernel, buffers)
    if kernel.template is None and ordered != kernel:
        kernel = ordered if gate.allows("codegen.loop_order", kernel.subject) else kernel
    flat, call, tile = _divided(kernel, buffers, gate)
    storage = call.storage()
    signature = {storage[n]: f"*{SIGNATURES[buffers[n].dtype]}" for n in call.loads}
    signature |= {storage[n]: f"*{SIGNATURES[buffers[n].dtype]}" for n in call.stores}
    signature |= dict.fromkeys(call.symbols, "size")
    signature |= {storage[n]: "fp64" for n in call.parameters}
    source = _text(flat, tile, storage, signature, part=bool(kernel.combo))
    device = kernel.nodes[0].out.device
    stream = f"stream_{device.index}" if device.type == "cuda" else "0"
    before = (stream, *_extent(tile, call, buffers))
    return TritonKernel(
        replace(call, source=source, before=before, mended=True),
        tile,
        flat,
        tuple(buffers[n] for n in (*call.loads, *call.stores)),
        signature,
        "device_assert" in source,
    )


def _divided(
    kernel: Kernel, buffers: Mapping[str, Buffer], gate: Gate
) -> tuple[FlatKernel, KernelCall, Tile]:
    """Return the loops of a kernel, its call, and the tile of a program."""
    if kernel.template is not None:
        flat = flatten(kernel, buffers, collapse=False)
        return flat, describe(kernel, flat, buffers), tile_of(kernel)
    collapse = gate.allows("codegen.collapse", kernel.subject)
    flat = flatten(kernel, buffers, collapse=collapse)
    call = describe(kernel, flat, buffers)
    points = _unrolled(flat)
    if points is not None and gate.allows("codegen.unroll", kernel.subject):
        flat, call = points.kernel, replace(call, points=points.names)
    return flat, call, _tile(flat, kernel.subject, gate)


def _unrolled(flat: FlatKernel) -> Unrolled | None:
    if not flat.accumulates:
        return unrolled_choices(flat)
    return unrolled_rows(flat) if runs_along_outer(flat) or _is_odd(flat) else None


def _is_odd(flat: FlatKernel) -> bool:
    """Return whether rows are not a power of two long, so that threads load no whole vectors.

    If every element has a result, neighbouring threads should store neighbours.
    """
    length = product(a.size for a in flat.inner).constant
    stores_points = any(n.inside and not n.reduces for n in flat.nodes if n.name in flat.stored)
    return length is not None and length & (length - 1) > 0 and not stores_points


def _tile(flat: FlatKernel, subject: str, gate: Gate) -> Tile:
    """Return the tile of a kernel. The gate is asked only about choices that matter for it."""
    if flat.accumulates:
        best = row_tile(flat)
        if best.persistent and not flat.sorts and not gate.allows("codegen.persistent", subject):
            return row_tile(flat, persistent=False)
        return best
    plain = point_tile(flat, tiled=False)
    best = plain if any(n.scatters for n in flat.nodes) else point_tile(flat)
    return best if best == plain or gate.allows("codegen.tile", subject) else plain


def _extent(tile: Tile, call: KernelCall, buffers: Mapping[str, Buffer]) -> tuple[str, ...]:
    """Python expressions: whether indices need int64, and the points along x, y and `alone`."""
    x, y = tile.group("x").size, product(g.size for g in tile.groups if g.name == "y")
    alone = product(a.size for a in tile.alone)
    return (_wide(tile, call, buffers), render(x), render(y), render(alone))


def _wide(tile: Tile, call: KernelCall, buffers: Mapping[str, Buffer]) -> str:
    points = product(g.size for g in tile.groups) * product(a.size for a in tile.alone)
    reached = [points, *(_last_place(buffers[n]) for n in (*call.loads, *call.stores))]
    known = [r.constant for r in reached if r.constant is not None]
    if any(k > NARROW for k in known):
        return "1"
    open_ = sorted({render(r) for r in reached if r.constant is None})
    return f"max({', '.join([*open_, '0'])}) > {NARROW}" if open_ else "0"


def _last_place(buffer: Buffer) -> Index:
    """Return the offset of the last element, plus one."""
    return buffer.address([size - 1 for size in buffer.size]) + 1
