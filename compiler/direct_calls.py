"""runtime.direct_calls: call compiled graphs past AOTAutograd's wrappers that have nothing to do.

The wrappers write back inputs, recreate aliases of outputs, unwrap tensor subclasses and more. Most
graphs need nothing of this, which is known when they are compiled. A graph with gradients remains
an autograd function of torch, with a forward and a backward that call the compiled graphs; unusual
calls go to torch's own. Decision 27 has the alternatives and what it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo  # torch 2.11 cannot import the wrappers before it
from torch import fx
from torch._functorch._aot_autograd import runtime_wrappers
from torch._subclasses.fake_tensor import FakeTensor

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.seams import InferenceCompiler

UNIT = "runtime.direct_calls"

Function = Callable[..., Any]
Guard = Callable[[], AbstractContextManager[Any]]
Mark = Callable[[torch.Tensor, set[int]], None]


@dataclass(frozen=True)
class Wrappers:
    """The functions that a version of torch puts around a compiled graph, outermost first.

    `inference` are those around a graph without gradients. `mark` names torch's function that
    marks the dynamic dimensions of a result.
    """

    inference: tuple[str, ...]
    mark: str


TRAINING = ("forward", "runtime_wrapper", "g", "apply")
"""The functions around a graph with gradients. The last is a method of its autograd function."""
FOUR = Wrappers(("forward", "runtime_wrapper", "wrapper", "inner_fn"), "maybe_mark_dynamic_helper")
TWO = Wrappers(("forward", "runtime_wrapper"), "mark_dynamo_propagated_dynamic_indices")

WRAPPERS = {"2.11": FOUR, "2.12": FOUR, "2.13": TWO, "2.14": TWO, "2.15": TWO}
"""Version of torch -> its wrappers. With other versions, no graph bypasses the wrappers."""


def offer(compiled: Function, make: Callable[[], Function]) -> None:
    """Offer a direct entry to a compiled inference graph.

    `make` returns a callable that takes the arguments of `compiled` one by one instead of in a
    list. If it calls anything that records gradients, it must disable them itself.
    """
    compiled.direct = make  # type: ignore[attr-defined] # read by `direct` alone


def direct(
    module: Any,
    made: Function,
    inference: InferenceCompiler,
    gate: Gate,
    log: EventLog,
) -> Function:
    """Return AOTAutograd's result `made` for a module, or what does the same in less time."""
    if not isinstance(module, fx.GraphModule) or any(True for _ in _held(module)):
        return made  # the graph also takes the parameters and buffers
    known = WRAPPERS.get(".".join(torch.__version__.split(".")[:2]))
    if known is None:
        reason = f"AOTAutograd's wrappers in torch {torch.__version__} are not known"
        log.emit(Fallback("calls through AOTAutograd", reason))
        return made
    wrappers = list(_wrappers(made, inference.compiled))
    names = tuple(map(_written_name, wrappers))
    mark: Mark = getattr(runtime_wrappers, known.mark)
    # graphs that are compiled under autocast run without it
    guard = torch._C._DisableAutocast if torch._C._is_any_autocast_enabled() else nullcontext
    if inference.compiled is None:
        function = getattr(wrappers[-1], "__self__", None)
        plain = names == TRAINING and _trains_plainly(function)
        allowed = plain and gate.allows(UNIT, "joint")
        return _training(made, function, mark, guard) if allowed else made
    make: Callable[[], Function] | None = getattr(inference.compiled, "direct", None)
    plain = names == known.inference and _is_plain(inference.metadata)
    if make is None or not plain or not gate.allows(UNIT, "joint"):
        return made
    return _guarded(_marking(make(), mark, inference.metadata), guard)


def _held(module: fx.GraphModule) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _wrappers(made: Any, compiled: Any) -> Iterator[Function]:
    """Yield the wrappers around a compiled graph, outermost first."""
    while made is not None and made is not compiled:
        yield made
        made = getattr(made, "__wrapped__", None)


def _written_name(function: Function) -> str:
    """Return the name of a function in its source, whatever it was given since; empty for none."""
    code = getattr(function, "__code__", None)
    return str(getattr(function, "__name__", "") if code is None else code.co_name)


def _is_plain(metadata: Any) -> bool:
    """Whether AOTAutograd's wrappers have nothing to do before and after a graph."""
    return metadata is not None and not (
        metadata.num_mutated_inp_runtime_indices
        or metadata.num_mutated_graph_handled_indices
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.tokens
        or metadata.is_rng_op_functionalized
        or metadata.grad_enabled_mutation is not None
    )


def _guarded(run: Function, guard: Guard) -> Function:
    """A graph that runs in a context."""
    if guard is nullcontext:
        return run

    def guarded(*args: Any) -> Any:
        with guard():
            return run(*args)

    return guarded


def _marking(run: Function, mark: Mark, metadata: Any) -> Function:
    """A graph that marks the dynamic dimensions of its results, for later graphs that take them."""
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


# -- graphs with gradients ----------------------------------------------------------------------


def _trains_plainly(function: Any) -> bool:
    """Whether AOTAutograd's function only calls the graphs of forward and backward."""
    metadata = function.metadata
    return bool(
        _is_plain(metadata)
        and function.maybe_subclass_metadata is None
        and not metadata.num_backward_tokens
        and not metadata.num_graphsafe_rng_states
        and not metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        and len(_differentiable(metadata)) == len(metadata.subclass_tangent_meta)
    )


def _differentiable(metadata: Any) -> list[int]:
    """Return the places of the results whose gradients backward takes."""
    return [
        place
        for place, info in enumerate(metadata.output_info)
        if issubclass(info.raw_type, torch.Tensor)
        and getattr(info, "requires_grad_for_backward", info.requires_grad)
    ]


def _training(made: Function, function: Any, mark: Mark, guard: Guard) -> Function:
    """Return what calls the autograd function of a graph directly, from the second call on.

    The first call is torch's. It checks custom operators, and its result shows whether inputs are
    detached, which the metadata does not say.
    """
    chosen: Function | None = None

    def run(*args: Any) -> Any:
        nonlocal chosen
        if chosen is not None:
            return chosen(*args)
        results = made(*args)
        if not any(isinstance(result, FakeTensor) for result in results):
            reaches = _reaches_inputs(results, function)
            chosen = _applying(made, function, mark, guard) if reaches else made
        return results

    return run


def _reaches_inputs(results: Sequence[Any], function: Any) -> bool:
    """Whether gradients reach all inputs that need them, so that none was detached."""
    nodes = [r.grad_fn for r in results if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    if not nodes or not isinstance(nodes[0], function._backward_cls):
        return False
    wanted: int = sum(info.requires_grad for info in function.metadata.input_info)
    return wanted == sum(edge[0] is not None for edge in nodes[0].next_functions)


def _applying(made: Function, function: Any, mark: Mark, guard: Guard) -> Function:
    """Return what applies the autograd function as AOTAutograd's wrappers do."""
    own = {
        "forward": staticmethod(_forward(function, mark)),
        "backward": staticmethod(_backward(function, guard)),
    }
    # a subclass, so that compiled autograd finds torch's attributes
    apply = _guarded(type(function)(function.__name__, (function,), own).apply, guard)
    is_grad_enabled = torch.is_grad_enabled
    replays_views = torch._C._is_view_replay_enabled
    set_replays_views = torch._C._set_view_replay_enabled
    # streams and events of the program, which torch keeps for backward
    objects = getattr(runtime_wrappers, "index_to_external_object_weakref", ())

    def run(*args: Any) -> Any:
        if not is_grad_enabled() or replays_views() or objects:
            return made(*args)
        set_replays_views(True)
        try:
            return apply(*args)
        finally:
            set_replays_views(False)

    return _marking(run, mark, function.metadata)


def _forward(function: Any, mark: Mark) -> Function:
    """Return the forward of an autograd function that calls a compiled graph."""
    compiled, metadata = function.compiled_fw, function.metadata
    checked = metadata.tensors_saved_for_backwards_with_vc_check_slice
    unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
    sizes = metadata.symints_saved_for_backwards_slice
    objects = metadata.opaque_objects_saved_for_backwards_slice
    returned, changing = metadata.num_forward_returns, metadata.dynamic_saved_tensors_idxs
    reshaped = tuple(metadata.unsafe_view_out_indices) if metadata.num_unsafe_view_outputs else ()
    infos = metadata.output_info
    constant = [place for place, info in enumerate(infos) if not info.requires_grad]
    inputs = getattr(metadata, "saved_tensor_is_graph_input", ())
    whole = frozenset(place for place, is_input in enumerate(inputs) if is_input)
    unsafe_view = torch.ops.aten._unsafe_view.default

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        values = compiled(list(args))
        kept = values[checked]
        saved = [
            value.detach() if value._is_view() and place not in whole else value
            for place, value in enumerate([*kept, *values[unchecked]])
        ]
        for place, dims in changing.items():
            mark(saved[place], dims)
        ctx.save_for_backward(*saved[: len(kept)])
        ctx._tensors_no_vc_check = saved[len(kept) :]
        ctx.symints, ctx.opaque_objects = values[sizes], values[objects]
        results = list(values[:returned])
        for place in reshaped:
            results[place] = unsafe_view(results[place], results[place].shape)
        if constant:
            outside = [results[place] for place in constant]
            ctx.mark_non_differentiable(*[r for r in outside if isinstance(r, torch.Tensor)])
        ctx._materialize_non_diff_grads = False
        return tuple(results)

    return forward


def _backward(function: Any, guard: Guard) -> Function:
    """Return the backward of an autograd function that calls a compiled graph.

    It calls torch's own backward if the graph is not compiled yet, if gradients have another type
    or layout than expected, are kept for another backward or are differentiated, or if torch would
    raise.
    """
    metadata, boxed = function.metadata, getattr(function, "boxed_grads_call", False)
    layouts = [meta.memory_format for meta in metadata.subclass_tangent_meta]
    tangents = list(zip(_differentiable(metadata), layouts, strict=True))
    torchs = function.backward
    allows_random_order = metadata.deterministic is False
    autograd = torch._C._autograd
    transforms = torch._C._functorch.peek_interpreter_stack

    def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        compiled = function.compiled_bw
        gradients: Any = given[0] if boxed else given
        if (
            compiled is None
            or torch.is_grad_enabled()
            or autograd._get_current_graph_task_keep_graph()
            or transforms() is not None
            or (allows_random_order and torch.are_deterministic_algorithms_enabled())
            or not all(_is_laid_out(gradients[place], layout) for place, layout in tangents)
        ):
            return torchs(ctx, *given)  # type: ignore[no-any-return] # torch's are not typed
        args = [
            *ctx.symints,
            *ctx.saved_tensors,
            *ctx._tensors_no_vc_check,
            *ctx.opaque_objects,
            *[gradients[place] for place, _ in tangents],
        ]
        if boxed:
            gradients.clear()  # the graph frees them
        ctx.maybe_clear_saved_tensors()
        given_context = torch._C._is_key_in_tls("context")
        context = torch._C._get_obj_in_tls("context") if given_context else None
        with guard():
            return tuple(compiled(args) if context is None else context.copy().run(compiled, args))

    return backward


def _is_laid_out(gradient: Any, layout: Any) -> bool:
    """Whether a gradient is a plain tensor with the layout for which backward was compiled."""
    if type(gradient) is not torch.Tensor:
        return False
    if layout.memory_format is not None:
        return gradient.is_contiguous(memory_format=layout.memory_format)
    laid_out: bool = gradient.shape == layout.size and gradient.stride() == layout.stride
    return laid_out
