"""codegen.unroll on GPUs: computes short rows without a loop over their elements.

A tile of rows has a power of two of elements per row, and reduces them across threads. Where
neighbours in memory belong to different rows, it is faster to give each thread whole rows: the
kernel becomes one without reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product as combinations

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.unroll import (
    LARGEST,
    Unrolled,
    at_point,
    of_point,
    point_name,
)
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.build import call, cast, constant
from tcdebug.compiler.ir.expr import Expr, walk
from tcdebug.compiler.ir.operations import gives_place

LONGEST = 8
"""The most elements of a row. A thread holds all of them in registers."""
COMBINES = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
COMBINES_BOOLS = {"max": "bitwise_or", "min": "bitwise_and"}


def unrolled_rows(kernel: FlatKernel) -> Unrolled | None:
    """Return a kernel that reduces short rows as one without reductions; None for others."""
    sizes = [axis.size.constant for axis in kernel.inner]
    lengths = [size for size in sizes if size is not None]
    if len(lengths) < len(sizes) or not kernel.outer or not kernel.accumulates:
        return None
    places = list(combinations(*(range(length) for length in lengths)))
    if not 2 <= len(places) <= LONGEST or any(not _is_supported(n) for n in kernel.nodes):
        return None
    if len(places) * sum(1 for n in kernel.nodes if n.inside for _ in walk(n.body)) > LARGEST:
        return None
    return _unrolled(kernel, places)


def _is_supported(node: FlatNode) -> bool:
    if node.scatters or node.scans or node.across:
        return False
    return not node.kind or node.body.dtype != torch.bool or node.kind in COMBINES_BOOLS


def _unrolled(kernel: FlatKernel, places: Sequence[tuple[int, ...]]) -> Unrolled:
    made = {n.name for n in kernel.nodes if n.inside and not n.reduces}
    nodes: list[FlatNode] = []
    names: dict[str, str] = {}
    for node in kernel.nodes:
        if not node.inside:
            nodes.append(replace(node, inside=True))
            names[node.name] = node.name
            continue
        points = [
            of_point(_at(node, kernel.inner, place), number, made)
            for number, place in enumerate(places)
        ]
        if node.reduces:
            body = cast(_folded(node.kind, [point.body for point in points]), node.dtype)
            nodes.append(replace(node, kind="", body=body))
            names[node.name] = node.name
        else:
            nodes += points
            names |= {point_name(node.name, n): node.name for n in range(len(points))}
    stored = frozenset(new for new, old in names.items() if old in kernel.stored)
    outer = kernel.outer
    step = len(places)
    flat = FlatKernel(kernel.name, outer[:-1], outer[-1:], tuple(nodes), stored, step)
    return Unrolled(flat, names)


def _at(node: FlatNode, axes: Sequence[Axis], place: Sequence[int]) -> FlatNode:
    for axis, position in zip(axes, place, strict=True):
        node = at_point(node, axis, position)
    return node


def _folded(kind: str, values: Sequence[Expr]) -> Expr:
    """Return the reduction of a row as an expression of its elements, in their order."""
    if gives_place(kind):
        return _place_of_extreme(values, "gt" if kind == "argmax" else "lt")
    combines = COMBINES_BOOLS if values[0].dtype == torch.bool else COMBINES
    return reduce(partial(call, combines[kind]), values)


def _place_of_extreme(values: Sequence[Expr], better: str) -> Expr:
    """Return the position of the extreme: the first of equal elements, or the first NaN."""
    best, place = values[0], constant(torch.int64, 0)
    for position, value in enumerate(values[1:], 1):
        wins = call(better, value, best)
        if value.dtype.is_floating_point:
            first_nan = call("bitwise_and", call("isnan", value), call("eq", best, best))
            wins = call("bitwise_or", wins, first_nan)
        best = call("where", wins, value, best)
        place = call("where", wins, constant(torch.int64, position), place)
    return place
