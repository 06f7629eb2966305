"""The units of inductor that are known before a compile."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table

from tcdebug.compiler.gate.gated import FAMILY as PROGRAM
from tcdebug.compiler.units import Unit
from tcdebug.minifier.cases.layer_names import DECOMPOSITIONS, OWN_RANDOM
from tcdebug.minifier.targets.autograd.units import AUTOGRAD_UNITS
from tcdebug.minifier.targets.inductor.autograd import CSE, DONATE, RECOMPUTE, is_required
from tcdebug.minifier.targets.inductor.higher_order.attention import ATTENTION
from tcdebug.minifier.targets.inductor.higher_order.control_flow import CONTROL_FLOW
from tcdebug.minifier.targets.inductor.kernel_shapes import SHAPES
from tcdebug.minifier.targets.inductor.lowering import REGION
from tcdebug.minifier.targets.inductor.settings import CODEGEN, GPU, LOWERING
from tcdebug.minifier.targets.inductor.triton_compile import COMPILES
from tcdebug.minifier.targets.ladder import BELOW_AOTINDUCTOR

FUSION = {
    "fuse.inline": "compute a value inside its readers instead of storing it, node by node",
    "fuse.vertical": "run a producer and its consumer in one kernel, pair by pair",
    "fuse.horizontal": "run two loops that read the same memory in one kernel, pair by pair",
    "fuse.prologue": "compute an operand of a template inside it",
    "fuse.epilogue": "compute what follows a template inside it",
}


def units() -> Iterator[Unit]:
    """Yield every unit whose name is known before a compile, in the order of the pipeline.

    Passes are named as inductor names them, and patterns after their functions. Which of them a
    compile has can be seen from its decisions.
    """
    yield Unit("dynamo.frame", "dynamo.frame.FUNCTION: capture a function, with layer.autograd off")
    yield Unit("dynamo.line", "capture a frame up to a statement, statement by statement")
    yield Unit("dynamo.call", "capture a frame up to a call; dynamo.call:N asks about calls")
    for name, summary in AUTOGRAD_UNITS.items():
        yield Unit(name, f"{summary}, with {DECOMPOSITIONS} off or by name")
    yield Unit(PROGRAM, f"{PROGRAM}.NAME: each pass that the program gates, and patterns in it")
    yield Unit("option", "option.NAME: each option that a script passes to torch.compile")
    yield Unit("config", "config.NAME: each setting that a script or variable changed")
    yield Unit(OWN_RANDOM, "generate random numbers; off: those of eager")
    yield Unit("pregrad", "pregrad.PASS: passes and patterns on the graph before autograd")
    for op in sorted((o for o in select_decomp_table() if not is_required(o)), key=str):
        yield Unit(f"decompose.{op}", f"replace {op} by simpler operators")
    yield Unit("joint", "joint.PASS: passes and patterns on forward and backward together")
    yield Unit(CSE, "compute common subexpressions of forward and backward once")
    yield Unit(RECOMPUTE, "recompute cheap values in backward instead of saving them")
    yield Unit(DONATE, "let backward write into saved tensors that nothing else reads")
    yield Unit("postgrad", "postgrad.PASS: passes and patterns on forward and on backward")
    yield Unit("freezing", "freezing.PASS: passes and patterns that freezing adds")
    yield Unit("config.layout_optimization", "use the fastest memory layout for convolutions")
    for name in LOWERING:
        yield Unit(f"config.{name}", f"torch._inductor.config.{name}; off: a conservative value")
    for op in sorted((o for o in lowering.lowerings if _is_builtin(o)), key=str):
        yield Unit(f"lower.{op}", f"generate loops for {op} instead of calling ATen")
    for op in ATTENTION:
        yield Unit(f"lower.{op}", f"use a template for {op}, with its score and mask function")
    for op, summary in CONTROL_FLOW.items():
        yield Unit(f"lower.{op}", f"{summary}; off: run it as eager does")
    yield Unit(f"lower.{REGION}", "compile a nested_compile_region once instead of inlining it")
    for name in (*CODEGEN, *GPU):
        yield Unit(f"config.{name}", f"torch._inductor.config.{name}; off: a conservative value")
    for name, summary in FUSION.items():
        yield Unit(name, summary)
    for name, summary in {**SHAPES, **COMPILES}.items():
        yield Unit(name, summary)
    yield Unit("codegen.vectorize", "use vector instructions, kernel by kernel")
    yield Unit("codegen.wide_integers", "leave a value of 8 or 16 bits as wide as C++ computes it")
    yield Unit("memory.reuse", "write a result to the memory of a dead one, buffer by buffer")
    yield Unit("memory.allocation", "allocate a buffer by the fast function of its device")
    yield Unit("memory.view", "refer to part of a buffer, or to another shape of it, view by view")
    yield Unit("memory.zero_tensor", "leave a tensor of zeros without memory, call by call")
    yield Unit("cudagraphs", "replay a CUDA graph instead of launching kernels")
    for layer, backend in BELOW_AOTINDUCTOR.items():
        yield Unit(layer, f"everything above the backend {backend}, as a whole")


def _is_builtin(op: object) -> bool:
    return isinstance(op, torch._ops.OpOverload) and op.namespace in ("aten", "prims")
