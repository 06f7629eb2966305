"""Bugs planted in real units of the compiler, for `tcdebug bisect` to find.

A plant breaks one unit for graphs that contain the trigger `tanh`, in one of four ways: an
exception, a wrong number, a segfault, a hang. The script that is bisected patches it in, like a
user's own registration.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from tcdebug.compiler import decompose, pipeline
from tcdebug.compiler.codegen.cpp.kernel import CppKernelWriter
from tcdebug.compiler.codegen.wrapper import lifetimes, wrapper
from tcdebug.compiler.ir.build import call, constant
from tcdebug.compiler.ir.expr import Call, Expr, walk
from tcdebug.compiler.ir.graph import Reduction
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
from tcdebug.compiler.schedule.fusing import fusion
from tcdebug.compiler.schedule.inlining import inline

aten = torch.ops.aten

KINDS = ("exception", "wrong", "segfault", "hang")


class Planted(Exception):
    """The exception of a planted bug."""


def misbehave(kind: str) -> None:
    """Fail in this way at compile time. The plant itself makes wrong numbers."""
    match kind:
        case "exception":
            raise Planted("a planted bug")
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            time.sleep(10_000)


def has_tanh(expr: Expr) -> bool:
    """Whether an expression computes the trigger."""
    return any(isinstance(e, Call) and e.name == "tanh" for e in walk(expr))


def doubled(expr: Expr) -> Expr:
    """The expression times 1.5: wrong, with the same type."""
    if not expr.dtype.is_floating_point:
        return expr
    return call("mul", expr, constant(expr.dtype, 1.5))


def plant_pass(unit: str, kind: str) -> None:
    """A pass on the ATen graph replaces tanh by its input."""
    original = pipeline.ATEN[unit]

    def broken(graph: torch.fx.Graph) -> bool:
        changed = original(graph)
        for node in list(graph.nodes):
            if node.target is aten.tanh.default:
                misbehave(kind)
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
                changed = True
        return changed

    REGISTRY.aten_passes[unit] = broken


def plant_pregrad_pass(unit: str, kind: str) -> None:
    """A pass before autograd replaces tanh by its input."""
    original = pipeline.PREGRAD[unit]

    def broken(graph: torch.fx.Graph) -> bool:
        changed = original(graph)
        for node in list(graph.nodes):
            if node.target in (torch.tanh, "tanh"):
                misbehave(kind)
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
                changed = True
        return changed

    REGISTRY.pregrad_passes[unit] = broken


def plant_decomposition(kind: str) -> None:
    """decompose.aten.tanh_backward.default, if there is a backward."""
    op = aten.tanh_backward.default
    original = decompose.decompositions()[op]

    def broken(*args: Any, **kwargs: Any) -> Any:
        misbehave(kind)
        return original(*args, **kwargs) * 1.5

    REGISTRY.decompositions[op] = broken


def plant_lowering(kind: str) -> None:
    """lower.aten.tanh.default."""
    original = LOWERINGS[aten.tanh.default]

    def broken(site: Any, x: Any) -> Any:
        misbehave(kind)
        right = original(site, x)
        return site.tensor(lambda point: doubled(right.at(point)))

    REGISTRY.lowerings[aten.tanh.default] = broken


def plant_storing(kind: str) -> None:
    """lower.aten.copy_.default, in a graph that computes tanh."""
    original = LOWERINGS[aten.copy_.default]

    def broken(site: Any, x: Any, source: Any, *rest: Any) -> Any:
        if any(n.target is aten.tanh.default for n in site.node.graph.nodes):
            misbehave(kind)
            right = source
            source = site.tensor(lambda point: doubled(right.at(point)))
        return original(site, x, source, *rest)

    REGISTRY.lowerings[aten.copy_.default] = broken


def plant_scatter(kind: str) -> None:
    """lower.aten.index_put.default, in a graph that computes tanh."""
    original = LOWERINGS[aten.index_put.default]

    def broken(site: Any, x: Any, positions: Any, values: Any, *rest: Any) -> Any:
        if any(n.target is aten.tanh.default for n in site.node.graph.nodes):
            misbehave(kind)
            right = values
            values = replace(right, element=lambda point: doubled(right.at(point)))
        return original(site, x, positions, values, *rest)

    REGISTRY.lowerings[aten.index_put.default] = broken


def plant_inline(kind: str) -> None:
    """fuse.inline, of a producer that computes tanh."""
    original = inline.inlined

    def broken(body: Expr, producer: Any) -> Expr:
        if has_tanh(producer.body) and not has_tanh(body):
            misbehave(kind)
            producer = replace(producer, body=doubled(producer.body))
        return original(body, producer)

    inline.inlined = broken  # type: ignore[assignment] # that is the plant


def plant_fusion(kind: str) -> None:
    """fuse.reduction, of a group that computes tanh."""
    original = fusion.Fusion._merge

    def broken(self: fusion.Fusion, a: fusion.Group, b: fusion.Group) -> bool:
        merged = original(self, a, b)
        group = self.group_of[a.head]
        asked = self.gate.decisions[-1].unit if self.gate.decisions else ""
        if not merged or asked != "fuse.reduction" or isinstance(group, fusion.Extern):
            return merged
        nodes = group.loops.nodes
        if any(has_tanh(n.body) for n in nodes) and any(isinstance(n, Reduction) for n in nodes):
            misbehave(kind)
            wrong = tuple(replace(n, body=doubled(n.body)) for n in nodes)
            group.loops = replace(group.loops, nodes=wrong)
        return merged

    fusion.Fusion._merge = broken  # type: ignore[method-assign] # that is the plant


RUNTIME = {
    "segfault": "*(volatile int*)8 = 1;",
    "hang": "for (volatile int k = 1; k;) {}",
}


def plant_codegen(kind: str) -> None:
    """codegen.vectorize, of a kernel that computes tanh. The kernel itself crashes or hangs."""
    original = CppKernelWriter.write

    def broken(self: CppKernelWriter) -> str:
        text = original(self)
        if not self.choices.vectorize or "tanh_(" not in text:
            return text
        if kind == "exception":
            raise Planted("a planted bug")
        if kind == "wrong":
            return text.replace("tanh_(", "1.5f * tanh_(")
        return text.replace("return found;", RUNTIME[kind] + " return found;")

    CppKernelWriter.write = broken  # type: ignore[method-assign] # that is the plant


def plant_reuse(kind: str) -> None:
    """memory.reuse: a result is written into memory that is still needed."""
    original = wrapper.WrapperWriter._allocate

    def broken(self: wrapper.WrapperWriter, buffer: Any) -> None:
        live = _live_buffer(self, buffer)
        if live is None or not self.gate.allows(wrapper.REUSE, f"{buffer.name}<-{live}"):
            original(self, buffer)
            return
        match kind:
            case "exception":
                raise Planted("a planted bug")
            case "segfault":
                self.names["crash"] = lambda: ctypes.string_at(0)
                self.lines.append("crash()")
            case "hang":
                self.names["sleep"] = time.sleep
                self.lines.append("sleep(10000)")
        self.lines.append(f"{buffer.name} = {live}")

    wrapper.WrapperWriter._allocate = broken  # type: ignore[method-assign] # that is the plant


def _live_buffer(writer: wrapper.WrapperWriter, buffer: Any) -> str | None:
    """A buffer of the same layout that is read later, in a graph with the trigger."""
    steps = writer.schedule.steps
    if not any("tanh" in name for name in writer.buffers):
        return None
    stores = [writer.calls[s.name].stores if s.name in writer.calls else () for s in steps]
    here = next(k for k, names in enumerate(stores) if buffer.name in names)
    for names in stores[:here]:
        for name in names:
            same = lifetimes.layout_of(writer.buffers[name]) == lifetimes.layout_of(buffer)
            if same and writer.lives.last_use.get(name, len(steps)) > here:
                return str(name)
    return None


PLANTS: dict[str, Callable[[str], None]] = {
    "pregrad.fused_attention": partial(plant_pregrad_pass, "pregrad.fused_attention"),
    "pregrad.whole_interpolation": partial(plant_pregrad_pass, "pregrad.whole_interpolation"),
    "pregrad.redundant_masks": partial(plant_pregrad_pass, "pregrad.redundant_masks"),
    "passes.algebraic": partial(plant_pass, "passes.algebraic"),
    "passes.joined_pieces": partial(plant_pass, "passes.joined_pieces"),
    "passes.updates_in_place": partial(plant_pass, "passes.updates_in_place"),
    "passes.constant_folding": partial(plant_pass, "passes.constant_folding"),
    "decompose.aten.tanh_backward.default": plant_decomposition,
    "lower.aten.tanh.default": plant_lowering,
    "lower.aten.copy_.default": plant_storing,
    "lower.aten.index_put.default": plant_scatter,
    "fuse.inline": plant_inline,
    "fuse.reduction": plant_fusion,
    "codegen.vectorize": plant_codegen,
    "memory.reuse": plant_reuse,
}
"""The plant of each unit."""
