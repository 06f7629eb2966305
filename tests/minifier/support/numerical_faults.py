"""Numerical faults planted in units of the compilers, for `tcdebug values` to find.

Each changes what one operator computes, or the memory of a value, in a model of several blocks. The
middle block has the operators that the plants look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from observed_models import Block, train
from torch import Tensor, nn

from tcdebug.compiler import pipeline
from tcdebug.compiler.codegen.cpp.kernel import CppKernelWriter
from tcdebug.compiler.codegen.wrapper import lifetimes, wrapper
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY

aten = torch.ops.aten


class Marked(nn.Module):
    """A block followed by operators that no other block has."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.block, self.layer = Block(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Compute sin, tanh, log1p, and a sum over many rows."""
        y = self.layer(torch.sin(self.block(x)))
        z = torch.tanh(y) + torch.log1p(y * y)
        return x + z / (1 + (z * z).sum((0, 1), keepdim=True))


def model(compiled: Callable[..., Any], blocks: int, dtype: torch.dtype) -> None:
    """Take a step of a model with this number of blocks."""
    parts = [Marked() if k == blocks // 2 else Block() for k in range(blocks)]
    train(nn.Sequential(*parts).to(dtype), torch.randn(4, 64, 32, dtype=dtype), compiled, 1)


def _lowering(operator: Any, dtype: torch.dtype, *, before: bool = False) -> Callable[[], None]:
    """The lowering of a pointwise operator rounds its result, or its operand, to a dtype."""

    def plant() -> None:
        original = LOWERINGS[operator]

        def rounding(site: Any, value: Any) -> Any:
            def element(point: Any) -> Any:
                expression = value.at(point)
                return cast(cast(expression, dtype), expression.dtype)

            if before:
                return original(site, site.tensor(element, dtype=None))
            right = original(site, value)
            return site.tensor(lambda point: _through(right.at(point), dtype))

        REGISTRY.lowerings[operator] = rounding

    return plant


def _through(expression: Any, dtype: torch.dtype) -> Any:
    return cast(cast(expression, dtype), expression.dtype)


NOT_YET: set[str] = set()
"""The patterns of plants in the text of kernels that no kernel has had so far."""


def took_effect() -> bool:
    """Return whether every plant in the text of kernels of this process has changed one."""
    return not NOT_YET


def _kernel_text(trigger: str, pattern: str, text: str) -> Callable[[], None]:
    """The writer of C++ kernels writes something else in kernels with a trigger."""

    def plant() -> None:
        original = CppKernelWriter.write
        NOT_YET.add(pattern)

        def write(self: CppKernelWriter) -> str:
            made = original(self)
            changed = re.sub(pattern, text, made) if trigger in made else made
            if changed != made:
                NOT_YET.discard(pattern)
            return changed

        CppKernelWriter.write = write  # type: ignore[method-assign] # the plant

    return plant


def _rounding_pass(graph: torch.fx.Graph) -> bool:
    """Round the operand of the first log1p to bfloat16."""
    for node in graph.nodes:
        if node.target is aten.log1p.default:
            operand = node.args[0]
            with graph.inserting_before(node):
                low = graph.call_function(
                    aten._to_copy.default, (operand,), {"dtype": torch.bfloat16}
                )
                low.meta["val"] = operand.meta["val"].to(torch.bfloat16)
                back = graph.call_function(
                    aten._to_copy.default, (low,), {"dtype": operand.meta["val"].dtype}
                )
                back.meta["val"] = operand.meta["val"]
            node.replace_input_with(operand, back)
            return True
    return False


def _scaling_pass(graph: torch.fx.Graph) -> bool:
    """Round the constant of the scaled products of attention."""
    for node in graph.nodes:
        if node.target is aten.mul.Tensor and isinstance(node.args[1], float):
            node.args = (node.args[0], round(node.args[1], 2))
            return True
    return False


def _embedded_pass(function: Callable[[torch.fx.Graph], bool]) -> Callable[[], None]:
    def plant() -> None:
        original = pipeline.ATEN["passes.algebraic"]
        REGISTRY.aten_passes["passes.algebraic"] = lambda graph: bool(
            original(graph) | function(graph)
        )

    return plant


def _inductor_pass(function: Callable[[torch.fx.Graph], bool]) -> Callable[[], None]:
    def plant() -> None:
        from torch._inductor import config  # noqa: PLC0415 # its import takes seconds

        config.post_grad_custom_post_pass = lambda graph: function(graph) and None

    return plant


def _plant_reuse() -> None:
    """A result of the embedded compiler is written into memory that is still needed."""
    original = wrapper.WrapperWriter._allocate

    def allocate(self: wrapper.WrapperWriter, buffer: Any) -> None:
        stores = [
            self.calls[s.name].stores if s.name in self.calls else () for s in self.schedule.steps
        ]
        here = next(k for k, names in enumerate(stores) if buffer.name in names)
        for name in (n for names in stores[:here] for n in names):
            same = lifetimes.layout_of(self.buffers[name]) == lifetimes.layout_of(buffer)
            read = self.schedule.steps[here].name
            free = name not in self.calls[read].loads
            if same and free and self.lives.last_use.get(name, 0) > here > len(stores) // 2:
                self.lines.append(f"{buffer.name} = {name}")
                return
        original(self, buffer)

    wrapper.WrapperWriter._allocate = allocate  # type: ignore[method-assign] # the plant


def _truncated(value: Any, steps: float) -> Any:
    """Round a value of inductor to multiples of 1 / steps. Its casts to half types do not round."""
    from torch._inductor import lowering  # noqa: PLC0415 # its import takes seconds

    scaled = lowering.lowerings[aten.mul.Tensor](value, steps)
    return lowering.lowerings[aten.mul.Tensor](
        lowering.lowerings[aten.trunc.default](scaled), 1 / steps
    )


def _inductor_lowering(operator: Any, steps: float) -> Callable[[], None]:
    """Inductor's lowering of an operator rounds its result."""

    def plant() -> None:
        from torch._inductor import lowering  # noqa: PLC0415 # its import takes seconds

        original = lowering.lowerings[operator]

        def rounding(*args: Any, **kwargs: Any) -> Any:
            return _truncated(original(*args, **kwargs), steps)

        lowering.lowerings[operator] = rounding

    return plant


def _inductor_operands(operator: Any, steps: float) -> Callable[[], None]:
    """Inductor's lowering of a product rounds its operands."""

    def plant() -> None:
        from torch._inductor import lowering  # noqa: PLC0415 # its import takes seconds

        original = lowering.lowerings[operator]

        def rounding(*args: Any, **kwargs: Any) -> Any:
            return original(*(_truncated(a, steps) for a in args), **kwargs)

        lowering.lowerings[operator] = rounding

    return plant


def _inductor_code(function: str, text: str) -> Callable[[], None]:
    """Inductor's vectorised C++ of an operator is something else. {x} is its operand."""

    def plant() -> None:
        from torch._inductor.codegen import cpp  # noqa: PLC0415 # its import takes seconds

        def write(x: Any) -> str:
            return text.replace("{x}", str(x))

        setattr(cpp.CppVecOverrides, function, staticmethod(write))

    return plant


FLICKER = "[]{static int n = 0; return n++ % 3 ? 1.0001f : 1.0f;}()"
"""A factor in C++ that differs between two runs, as after a race."""


@dataclass(frozen=True)
class NumericalFault:
    """A plant, the model it is in, and what should be named."""

    name: str
    backend: str
    plant: Callable[[], None]
    kind: str
    operator: str
    """An operator among the nodes that the report should list."""
    blocks: int = 2
    dtype: torch.dtype = torch.float32
    twice: bool = False


BF16, FP16 = torch.bfloat16, torch.float16
SUM = _kernel_text(
    "sum",
    r"(part_\w+(?:\[\w+\])?) \+= ([^;]+);",
    r"\1 = from_bfloat16(to_bfloat16(\1 + \2));",
)
FACTOR = _kernel_text("sin_(", r"\bsin_\(", "1.001f * sin_(")
CHANGING = _kernel_text("sin_(", r"\bsin_\(", f"{FLICKER} * sin_(")
SQUARE = "{x} * {x}"
TANH = _inductor_code(
    "tanh",
    f"({{x}} * ({SQUARE} + decltype({{x}})(27)) / "
    f"({SQUARE} * decltype({{x}})(9) + decltype({{x}})(27)))",
)
SIN = _inductor_code("sin", "({x}.sin() * decltype({x})(" + FLICKER + "))")
Fault = NumericalFault
EMBEDDED = (
    Fault("a sine in bfloat16", "tcdebug", _lowering(aten.sin.default, BF16), "kernel", "sin", 8),
    Fault(
        "an operand in float16", "tcdebug", _lowering(aten.tanh.default, FP16, before=True),
        "kernel", "tanh", 6,
    ),
    Fault(
        "an operand in bfloat16", "tcdebug", _lowering(aten.log1p.default, BF16, before=True),
        "kernel", "log1p", 4,
    ),
    Fault("an exponential", "tcdebug", _lowering(aten.exp.default, BF16), "kernel", "exp", 3),
    Fault("a root", "tcdebug", _lowering(aten.rsqrt.default, FP16), "kernel", "rsqrt", 3),
    Fault(
        "a root in bfloat16, in a bfloat16 model", "tcdebug", _lowering(aten.rsqrt.default, BF16),
        "kernel", "rsqrt", 3, BF16,
    ),
    Fault("a sum in bfloat16", "tcdebug", SUM, "kernel", "aten.", 3),
    Fault("a sum in bfloat16, in a bfloat16 model", "tcdebug", SUM, "kernel", "aten.", 3, BF16),
    Fault("a wrong factor", "tcdebug", FACTOR, "kernel", "sin", 4),
    Fault("a pass that rounds", "tcdebug", _embedded_pass(_rounding_pass), "passes", "log1p", 3),
    Fault("memory used too early", "tcdebug", _plant_reuse, "overwritten", "", 3),
    Fault("a result that changes", "tcdebug", CHANGING, "kernel", "sin", 3, twice=True),
)  # fmt: skip
STOCK = (
    Fault(
        "a sine with 8 bits", "inductor", _inductor_lowering(aten.sin.default, 256),
        "kernel", "sin",
    ),
    Fault(
        "a logarithm with 11 bits", "inductor", _inductor_lowering(aten.log1p.default, 2048),
        "kernel", "log1p",
    ),
    Fault(
        "a root with 6 bits, in a bfloat16 model", "inductor",
        _inductor_lowering(aten.rsqrt.default, 64), "kernel", "rsqrt", 2, BF16,
    ),
    Fault(
        "a sum with 8 bits", "inductor", _inductor_lowering(aten.sum.dim_IntList, 256),
        "kernel", "sum",
    ),
    Fault(
        "a product of rounded operands", "inductor", _inductor_operands(aten.addmm.default, 256),
        "operator", "addmm",
    ),
    Fault("an approximate tanh", "inductor", TANH, "kernel", "tanh"),
    Fault("a pass that rounds", "inductor", _inductor_pass(_scaling_pass), "passes", "mul"),
    Fault("a result that changes", "inductor", SIN, "kernel", "sin", twice=True),
)  # fmt: skip
FAULTS: tuple[NumericalFault, ...] = (*EMBEDDED, *STOCK)
