"""The private parts of torch that the compiler uses.

docs/private-torch.md lists every private name, including the few that other files use.
tests/compiler/test_seams.py fails when torch moves one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._decomp import _core_aten_decompositions_post_autograd as core_aten_decompositions
from torch._decomp import get_decompositions
from torch._decomp.decompositions import native_batch_norm_helper
from torch._dynamo.utils import counters, flatten_graph_inputs, get_metrics_context
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext
from torch._logging._internal import trace_log
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import unset_fake_temporarily

__all__ = [
    "aot_autograd",
    "below_autograd",
    "boxed",
    "compile_id",
    "core_aten_decompositions",
    "default_partition",
    "get_decompositions",
    "graph_break",
    "keep_unused_draws",
    "min_cut_rematerialization_partition",
    "native_batch_norm_helper",
    "path_steps",
    "real_tensors",
    "recompile_reason",
    "report_strides",
    "suggest_memory_format",
    "takes_strides",
    "traced",
    "traced_metadata",
    "unbacked_bindings",
]

TRACING = "tcdebug"
"""The name of the logging handler that writes torch's structured trace as events."""

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass
class InferenceCompiler:
    """Compiles an inference graph for AOTAutograd, and keeps the result and torch's metadata."""

    compiler: Compiler
    compiled: Callable[..., Any] | None = field(default=None, init=False)
    metadata: Any = field(default=None, init=False)

    def compile(self, graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Return the compiled graph."""
        self.compiled = self.compiler(graph, examples)
        self.metadata = traced_metadata()
        return self.compiled


Direct = Callable[[fx.GraphModule, Callable[..., Any], InferenceCompiler], Callable[..., Any]]


def keep_unused_draws() -> AbstractContextManager[object]:
    """While the block runs, torch keeps random operators whose results are unused in a graph.

    Removing them would change the numbers that later operators draw. torch reads inductor's config
    for this, whatever the backend; tracing a graph loads that config in any case.
    """
    patched: AbstractContextManager[object] = torch._inductor.config.patch(fallback_random=True)
    return patched


def aot_autograd(
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    direct: Direct = lambda module, made, inference: made,
    **others: Any,
) -> Compiler:
    """AOTAutograd as a backend of torch.compile.

    torch's own `aot_autograd` first imports all of inductor: half a second of each warm start.
    `direct` may replace AOTAutograd's result for a module by what does the same in less time.
    `others` are arguments of torch's `aot_module_simplified`.
    """
    compile_backward = bw_compiler or fw_compiler

    def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        # runs at the first call of backward, when Dynamo may be tracing frames
        made = _untraced(compile_backward, "it compiles")(graph, inputs)
        return _untraced(made, "it is compiled")

    compile_inference = others.pop("inference_compiler", None) or fw_compiler

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if any(isinstance(given, (list, tuple, dict)) for given in inputs):
            flat: Callable[..., Any] = flatten_graph_inputs(module, inputs, backend)
            return flat
        counters["aot_autograd"]["total"] += 1  # torch's DDP optimizer reads this counter
        inference = InferenceCompiler(compile_inference)
        compilers = {"fw_compiler": fw_compiler, "bw_compiler": backward, **others}
        compilers["inference_compiler"] = inference.compile
        made = aot_module_simplified(module, inputs, **compilers)
        return _untraced(direct(module, made, inference), "it is compiled")

    return backend


def _untraced(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Return a callable whose frames Dynamo does not trace."""
    disable: Callable[..., Callable[..., Any]] = torch.compiler.disable
    return disable(function, reason=reason)


def traced_metadata() -> Any:
    """What AOTAutograd knows of the graph that is being compiled; None outside of its compiles."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def takes_strides(seen: int) -> bool:
    """Whether AOTAutograd accepts the strides of saved tensors from the forward being compiled.

    `seen` is the number of results that are not only saved for backward. It must agree with
    AOTAutograd's own count.
    """
    context = TracingContext.try_get()
    if context is None or context.output_strides is None or context.fw_metadata is None:
        return False
    return context.fw_metadata.num_forward == seen


def report_strides(strides: Sequence[tuple[int, ...] | None]) -> None:
    """Report the strides of the results of the forward being compiled; None means as traced.

    AOTAutograd compiles backward for these strides. Call this only if `takes_strides` is true.
    """
    context = TracingContext.get()
    assert context.output_strides is not None
    context.output_strides[:] = strides


def compile_id() -> str:
    """Return the id of the current compile as torch writes it (0/0); empty outside of a compile."""
    current = CompileContext.current_compile_id()
    return "" if current is None else str(current)


def recompile_reason() -> str:
    """Return the guard whose failure caused the current capture; empty for a first capture."""
    return str(get_metrics_context()._metrics.get("recompile_reason") or "")


def graph_break(module: fx.GraphModule) -> tuple[str, Mapping[str, Any]] | None:
    """The reason and the user's line of the graph break that ended a graph; None without one.

    The line is {filename, line, name}.
    """
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    place = reason.user_stack[-1] if reason.user_stack else None
    where = {"filename": place.filename, "line": place.lineno, "name": place.name} if place else {}
    return str(reason.reason), where


def traced() -> bool:
    """Whether torch's structured trace, which has breaks and recompiles, is written as events."""
    return any(handler.get_name() == TRACING for handler in trace_log.handlers)


def min_cut(memory_budget: float) -> AbstractContextManager[None]:
    """While the block runs, min-cut saves at most this share of the activations.

    1 keeps torch's setting. Common subexpression elimination, for which torch imports all of
    inductor, is off.
    """
    settings: dict[str, Any] = {"cse": False}
    if memory_budget != 1.0:
        settings["activation_memory_budget"] = memory_budget
    chosen: AbstractContextManager[None] = functorch_config.patch(settings)
    return chosen


def boxed(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a callable as taking its arguments in one list, which it may empty."""
    function._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd's protocol
    return function


def as_boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A callable that takes its arguments in a list, made from one that may take them singly."""
    if getattr(function, "_boxed_call", False):
        return function
    return boxed(lambda args: function(*args))


def unbacked_bindings(node: fx.Node) -> Mapping[Any, tuple[tuple[str, Any], ...]]:
    """The sizes that become known when a node runs: sympy symbol -> steps into its result."""
    bindings = node.meta.get("unbacked_bindings") or {}
    return {symbol: path_steps(path) for symbol, path in bindings.items()}


def path_steps(path: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Return a key path of torch as plain steps: ("call", name), ("item", i), ("divide", n).

    Raises NotImplementedError for other kinds of key.
    """
    steps: list[tuple[str, Any]] = []
    for key in path:
        kind = type(key).__name__
        if kind == "CallMethodKey":
            steps.append(("call", key.name))
        elif kind == "SequenceKey":
            steps.append(("item", key.idx))
        elif kind == "DivideByKey":
            steps.append(("divide", int(key.divisor)))
        elif kind != "ConvertIntKey":
            raise NotImplementedError(f"the key {kind} of an unbacked size is not supported")
    return tuple(steps)


def is_strided(value: torch.Tensor) -> bool:
    """Return whether a fake tensor is strided and on a device with memory, not on meta."""
    return value.layout == torch.strided and value.device.type != "meta"


def captured_sizes(module: fx.GraphModule) -> dict[str, int]:
    """The values of a graph's size symbols when it was captured, as far as they are known."""
    found: dict[str, int] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        given = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for size in given:
            if isinstance(size, torch.SymInt) and size.node.hint is not None:
                found[str(size.node.expr)] = int(size.node.hint)
    return found


def has_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN has products of bfloat16 or float16 on this processor.

    True if torch has no oneDNN: ATen's products of these types are then others.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call] # torch's is
        return True
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def cuda_capability() -> int:
    """Return the compute capability of the current GPU, such as 90."""
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
"""One microsecond faster than the public context managers."""

_dynamo_guards: Any = torch._C._dynamo.guards  # its stub lacks some of its functions

empty_strided_cpu: Callable[..., torch.Tensor] = _dynamo_guards._empty_strided_cpu
"""(size, stride, dtype) -> tensor. One microsecond faster than torch.empty_strided."""

reinterpret_tensor: Callable[..., torch.Tensor] = _dynamo_guards._reinterpret_tensor
"""(tensor, size, stride, offset) -> a tensor of the same storage. The offset, in elements, is added
to that of the tensor. Autograd does not know that the result is a view."""

address_of_tensor: int = _dynamo_guards._torchinductor_pyobject_tensor_data_ptr
"""The address of a C++ function that takes a tensor as a Python object and returns its data
pointer. It may throw."""


def cuda_functions() -> dict[str, Callable[..., Any]]:
    """The torch functions that a wrapper calls on a GPU, without the checks of the public ones."""
    return {
        "cuda_device": torch.cuda.device,
        "current_stream": torch._C._cuda_getCurrentRawStream,
        "empty_strided_cuda": _dynamo_guards._empty_strided_cuda,
    }


def storage_id(value: torch.Tensor) -> int:
    """Return an id of the storage of a tensor, valid while the storage lives."""
    identity: int = value.untyped_storage()._cdata
    return identity


def storage_uses(identity: int) -> int:
    """Return the reference count of a storage, which must still be alive."""
    uses: int = torch._C._storage_Use_Count(identity)
    return uses


@contextmanager
def real_tensors() -> Iterator[None]:
    """Compute with real tensors during a compile, in which torch traces with fake ones."""
    with torch.no_grad(), unset_fake_temporarily():
        yield


@contextmanager
def below_autograd() -> Iterator[None]:
    """Call operators below autograd, above which torch decomposes some of them in Python."""
    with torch._C._AutoDispatchBelowAutograd():
        yield
