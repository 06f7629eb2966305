"""The places where the compiler touches what torch does not promise to keep.

docs/private-torch.md has every private name and the few that stand elsewhere;
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
from torch._functorch._aot_autograd import runtime_wrappers
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
    "every_draw",
    "get_decompositions",
    "graph_break",
    "min_cut_rematerialization_partition",
    "native_batch_norm_helper",
    "path_steps",
    "real_tensors",
    "recompile_reason",
    "report_strides",
    "suggest_memory_format",
    "takes_strides",
    "traced",
    "unbacked_bindings",
]

TRACING = "tcdebug"
"""The name of the handler that writes torch's structured trace to our events."""

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def every_draw() -> AbstractContextManager[object]:
    """While it lasts, torch leaves random numbers in a graph that nobody reads.

    What is drawn after them would be other numbers than eager's. torch looks at inductor's config
    for that, whatever the backend: tracing a graph loads it in any case.
    """
    patched: AbstractContextManager[object] = torch._inductor.config.patch(fallback_random=True)
    return patched


def aot_autograd(
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    unknown_torch: Callable[[str], None] = lambda version: None,
    **others: Any,
) -> Compiler:
    """AOTAutograd as a backend: joint graph, functionalization, wrappers.

    torch has the same, which imports all of inductor first: half a second of each warm start.
    Calls `unknown_torch` with the version of torch when a graph could be called straight, but
    `AROUND` does not have this version.
    """
    compile_backward = bw_compiler or fw_compiler

    def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        # this may run while Dynamo looks at frames: when backward is first called
        made = _untraced(compile_backward, "it compiles")(graph, inputs)
        return _untraced(made, "it is compiled")

    compile_inference = others.pop("inference_compiler", None) or fw_compiler

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if any(isinstance(given, (list, tuple, dict)) for given in inputs):
            flat: Callable[..., Any] = flatten_graph_inputs(module, inputs, backend)
            return flat
        counters["aot_autograd"]["total"] += 1  # how torch knows where buckets of DDP went
        inference = Inference(compile_inference)
        compilers = {"fw_compiler": fw_compiler, "bw_compiler": backward, **others}
        compilers["inference_compiler"] = inference.compile
        made = aot_module_simplified(module, inputs, **compilers)
        straight = inference.straight(module, made, unknown_torch)
        return _untraced(straight, "it is compiled")

    return backend


@dataclass(frozen=True)
class Around:
    """What a version of torch puts around each inference graph, from the outside in.

    `mark` names its function that notes the sizes of a result that may change.
    """

    functions: tuple[str, ...]
    mark: str


FOUR = Around(("forward", "runtime_wrapper", "wrapper", "inner_fn"), "maybe_mark_dynamic_helper")
TWO = Around(("forward", "runtime_wrapper"), "mark_dynamo_propagated_dynamic_indices")

AROUND = {"2.11": FOUR, "2.12": FOUR, "2.13": TWO, "2.14": TWO, "2.15": TWO}
"""The wrappers of every supported version of torch; other versions call no graph straight."""


def offer_straight(compiled: Callable[..., Any], make: Callable[[], Callable[..., Any]]) -> None:
    """Say of a compiled graph that it can be called straight.

    `make` gives what takes its arguments as they are, where `compiled` takes them in a list. It
    turns gradients off itself, if it calls what heeds them.
    """
    compiled.straight = make  # type: ignore[attr-defined] # read by `Inference` alone


@dataclass
class Inference:
    """An inference graph that is called straight, past what AOTAutograd puts around it, if it can.

    That writes back inputs, makes aliases of outputs anew, takes tensor subclasses apart and more,
    and takes 1.5 us of each call also where nothing is to be done. `compiler` compiles the graph.
    """

    compiler: Compiler
    _compiled: Callable[..., Any] | None = field(default=None, init=False)
    _metadata: Any = field(default=None, init=False)

    def compile(self, graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """What AOTAutograd is given as a compiler."""
        self._compiled = self.compiler(graph, examples)
        context = TracingContext.try_get()
        self._metadata = None if context is None else context.fw_metadata
        return self._compiled

    def straight(
        self, module: Any, made: Callable[..., Any], unknown_torch: Callable[[str], None]
    ) -> Callable[..., Any]:
        """What AOTAutograd has made of a module, or the graph itself where that does the same."""
        make = getattr(self._compiled, "straight", None)
        if make is None or not _asks_for_nothing(self._metadata):
            return made
        if not isinstance(module, fx.GraphModule) or any(True for _ in _held(module)):
            return made  # the graph has other arguments
        around = AROUND.get(".".join(torch.__version__.split(".")[:2]))
        if around is None:
            unknown_torch(str(torch.__version__))
            return made
        if torch._C._is_any_autocast_enabled() or _around(made, self._compiled) != around.functions:
            return made
        run: Callable[..., Any] = make()
        return _marking(run, getattr(runtime_wrappers, around.mark), self._metadata)


def _asks_for_nothing(metadata: Any) -> bool:
    """Whether AOTAutograd has nothing to do before and after an inference graph."""
    return metadata is not None and not (
        metadata.num_mutated_inp_runtime_indices
        or metadata.num_mutated_graph_handled_indices
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.tokens
        or metadata.is_rng_op_functionalized
        or metadata.grad_enabled_mutation is not None
    )


def _held(module: fx.GraphModule) -> Any:
    yield from module.parameters()
    yield from module.buffers()


def _around(made: Any, compiled: Any) -> tuple[str, ...] | None:
    """The names of the functions from the outermost to the graph; None where it is not reached."""
    names: list[str] = []
    while made is not compiled:
        if made is None or not hasattr(made, "__code__"):
            return None
        names.append(made.__code__.co_name)
        made = getattr(made, "__wrapped__", None)
    return tuple(names)


def _marking(
    run: Callable[..., Any], mark: Callable[[torch.Tensor, set[int]], None], metadata: Any
) -> Callable[..., Any]:
    """A graph that notes which sizes of its results may change, for graphs that these go into."""
    if not metadata.dynamic_outputs:
        return run
    dims = [info.dynamic_dims for info in metadata.output_info]
    changing = [(place, some) for place, some in enumerate(dims) if some is not None]

    def marked(*args: Any) -> Any:
        results = run(*args)
        for place, some in changing:
            mark(results[place], some)
        return results

    return marked


def _untraced(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """A callable whose frames Dynamo leaves alone."""
    disable: Callable[..., Callable[..., Any]] = torch.compiler.disable
    return disable(function, reason=reason)


def takes_strides(seen: int) -> bool:
    """Whether AOTAutograd lets the forward that is compiled say in which strides it saves results.

    `seen` are the first results, which are not for backward alone: AOTAutograd has to count alike.
    """
    context = TracingContext.try_get()
    if context is None or context.output_strides is None or context.fw_metadata is None:
        return False
    return context.fw_metadata.num_forward == seen


def report_strides(strides: Sequence[tuple[int, ...] | None]) -> None:
    """Say in which strides the forward that is compiled gives its results; None for as expected.

    Backward is compiled for these. Only where `takes_strides` said so.
    """
    context = TracingContext.get()
    assert context.output_strides is not None
    context.output_strides[:] = strides


def compile_id() -> str:
    """The id of the compile in progress, as torch writes it (0/0); empty outside of one."""
    current = CompileContext.current_compile_id()
    return "" if current is None else str(current)


def recompile_reason() -> str:
    """Why the frame in progress is captured again: the guard that failed; empty the first time."""
    return str(get_metrics_context()._metrics.get("recompile_reason") or "")


def graph_break(module: fx.GraphModule) -> tuple[str, Mapping[str, Any]] | None:
    """Why a captured graph ends before its frame does, and the user's line; None where it does not.

    The line is {filename, line, name}.
    """
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    place = reason.user_stack[-1] if reason.user_stack else None
    where = {"filename": place.filename, "line": place.lineno, "name": place.name} if place else {}
    return str(reason.reason), where


def traced() -> bool:
    """Whether torch's structured trace is written to our events: it has breaks and recompiles."""
    return any(handler.get_name() == TRACING for handler in trace_log.handlers)


def min_cut(memory_budget: float) -> AbstractContextManager[None]:
    """In this block min-cut keeps at most this share of activations; 1 leaves torch's setting.

    It does not look for equal calls first, for which torch imports all of inductor.
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


def taking_a_list(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A callable of arguments as one that takes them in a list, unless it does already."""
    if getattr(function, "_boxed_call", False):
        return function
    return boxed(lambda args: function(*args))


def unbacked_bindings(node: fx.Node) -> Mapping[Any, tuple[tuple[str, Any], ...]]:
    """Sizes that become known by running a node: sympy symbol -> steps into the result."""
    bindings = node.meta.get("unbacked_bindings") or {}
    return {symbol: path_steps(path) for symbol, path in bindings.items()}


def path_steps(path: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """A key path of torch as plain steps: ("call", name), ("item", i), ("divide", n)."""
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
            raise NotImplementedError(f"a size found by {kind}")
    return tuple(steps)


def dispatches_to_cpu(value: torch.Tensor) -> bool:
    """Whether a fake tensor is a plain strided CPU tensor."""
    return value.device.type == "cpu" and value.layout == torch.strided


def is_strided(value: torch.Tensor) -> bool:
    """Whether a fake tensor is a plain strided one on a device that has memory."""
    return value.layout == torch.strided and value.device.type != "meta"


def captured_sizes(module: fx.GraphModule) -> dict[str, int]:
    """What the size symbols of a graph stood for when it was captured, as far as that is known."""
    found: dict[str, int] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        given = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for size in given:
            if isinstance(size, torch.SymInt) and size.node.hint is not None:
                found[str(size.node.expr)] = int(size.node.hint)
    return found


def cuda_capability() -> int:
    """The compute capability of the current GPU, such as 90."""
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
"""A microsecond faster than the public context managers."""

_dynamo_guards: Any = torch._C._dynamo.guards  # its stub does not have all of its functions

empty_strided_cpu: Callable[..., torch.Tensor] = _dynamo_guards._empty_strided_cpu
"""(size, stride, dtype) -> memory, a microsecond faster than torch.empty_strided."""


address_of_tensor: int = _dynamo_guards._torchinductor_pyobject_tensor_data_ptr
"""The address of a C++ function: a tensor as a Python object -> its memory; it may throw."""


def cuda_functions() -> dict[str, Callable[..., Any]]:
    """What a wrapper calls on a GPU, without the checks of torch's public functions."""
    return {
        "cuda_device": torch.cuda.device,
        "current_stream": torch._C._cuda_getCurrentRawStream,
        "empty_strided_cuda": _dynamo_guards._empty_strided_cuda,
    }


def storage_id(value: torch.Tensor) -> int:
    """What names the storage of a tensor while it lives."""
    identity: int = value.untyped_storage()._cdata
    return identity


def storage_uses(identity: int) -> int:
    """How many tensors and others hold a storage, which has to live."""
    uses: int = torch._C._storage_Use_Count(identity)
    return uses


@contextmanager
def real_tensors() -> Iterator[None]:
    """Compute with numbers while a compile is going on, where torch traces with fake tensors."""
    with torch.no_grad(), unset_fake_temporarily():
        yield


@contextmanager
def below_autograd() -> Iterator[None]:
    """Call operators as they are: above this, torch takes some apart in Python."""
    with torch._C._AutoDispatchBelowAutograd():
        yield
