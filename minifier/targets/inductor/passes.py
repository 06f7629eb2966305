"""Passes over FX graphs: those that run as a whole, and each application of a pattern."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch._inductor.freezing
from torch._inductor import compile_fx
from torch._inductor.fx_passes import post_grad, pre_grad
from torch._inductor.pattern_matcher import (
    GraphPatternEntry,
    LoweringPatternEntry,
    PatternMatcherPass,
    ReplacementPatternEntry,
)
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.targets.inductor.pass_names import (
    REQUIRED,
    function_name,
    outermost_function,
    pattern_name,
)
from tcdebug.minifier.targets.patching import patched

Function = Callable[..., Any]

FAMILIES = {
    "pre_grad_passes": "pregrad",
    "joint_graph_passes": "joint",
    "post_grad_passes": "postgrad",
}
"""Subsystem, as torch calls it -> what the names of its units begin with."""

ENTRIES = (GraphPatternEntry, LoweringPatternEntry, ReplacementPatternEntry)

STAGES = (
    (compile_fx, "pre_grad_passes", "pregrad"),
    (compile_fx, "joint_graph_passes", "joint"),
    (compile_fx, "post_grad_passes", "postgrad"),
    (torch._inductor.freezing, "freezing_passes", "freezing"),
)
"""Functions that run all passes of a stage, and the family of these passes."""

CALLED_DIRECTLY = (
    (pre_grad, "sink_cat_after_pointwise"),
    (pre_grad, "linear_permute_fusion"),
    (pre_grad, "permute_linear_fusion"),
    (pre_grad, "permute_matmul_fusion"),
    (pre_grad, "remove_identity"),
    (pre_grad, "fuse_conv_bn"),
    (post_grad, "micro_pipeline_tp_pass"),
    (torch._inductor.freezing, "constant_fold"),
)
"""Passes that no observer announces; each takes a graph and may return another one."""

REQUIRED_FAMILY = ""
"""The family inside a required pass: nothing there is asked."""
OUTSIDE = "pass"
"""The family of what runs outside all stages."""


@contextlib.contextmanager
def passes(gate: Gate) -> Iterator[None]:
    """Every optional pass, and every place where an optional pattern matches, asks the gate."""
    seam = _Seam(gate)
    with contextlib.ExitStack() as stack:
        for owner, name, family in STAGES:
            stack.enter_context(patched(owner, name, functools.partial(seam.stage, family)))
        for owner, name in CALLED_DIRECTLY:
            stack.enter_context(patched(owner, name, seam.called_directly))
        for name in ("apply_graph_pass", "apply_gm_pass"):
            stack.enter_context(patched(GraphTransformObserver, name, seam.observed))
        stack.enter_context(patched(PatternMatcherPass, "apply", seam.pattern_pass))
        for entry in ENTRIES:
            stack.enter_context(patched(entry, "apply", seam.application))
        yield


class _Seam:
    """Wraps what runs passes. It knows which family of passes is running."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._families = [OUTSIDE]

    def stage(self, family: str, original: Function) -> Function:
        """A function that runs all passes of a stage."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._within(family):
                return original(*args, **kwargs)

        return run

    def observed(self, original: Function) -> Function:
        """A method of torch's observer, which runs one pass under a name."""

        @functools.wraps(original)
        def apply(observer: Any, pass_fn: Function) -> Any:
            family = FAMILIES.get(observer.subsystem, self._families[-1])
            if observer.passname in REQUIRED:
                family = REQUIRED_FAMILY
            elif not isinstance(getattr(pass_fn, "__self__", None), PatternMatcherPass):
                subject = function_name(pass_fn) or observer.passname
                if not self._gate.allows(f"{family}.{observer.passname}", subject):
                    return None
            with self._within(family):
                return original(observer, pass_fn)

        return apply

    def called_directly(self, original: Function) -> Function:
        """A pass that is called as a function. Outside all stages it is required.

        Freezing packs weights, and at its end the packing has to be folded.
        """

        @functools.wraps(original)
        def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
            name = original.__name__
            if self._families[-1] == OUTSIDE:
                return original(graph, *args, **kwargs)
            if not self._gate.allows(f"{self._families[-1]}.{name}", name):
                return graph
            return original(graph, *args, **kwargs)

        return run

    def pattern_pass(self, original: Function) -> Function:
        """The method that applies a group of patterns, each of which asks for itself."""

        @functools.wraps(original)
        def apply(group: Any, *args: Any, **kwargs: Any) -> Any:
            family = self._families[-1]
            if family != REQUIRED_FAMILY:
                family = FAMILIES.get(group.subsystem, family)
            with self._within(family):
                return original(group, *args, **kwargs)

        return apply

    def application(self, original: Function) -> Function:
        """The method that rewrites one match of a pattern."""

        @functools.wraps(original)
        def apply(entry: Any, match: Any, graph: Any, node: Any) -> None:
            family = self._families[-1]
            required = family == REQUIRED_FAMILY or _belongs_to_required(entry)
            if required or self._gate.allows(f"{family}.{pattern_name(entry)}", node.name):
                original(entry, match, graph, node)

        return apply

    @contextlib.contextmanager
    def _within(self, family: str) -> Iterator[None]:
        self._families.append(family)
        try:
            yield
        finally:
            self._families.pop()


def _belongs_to_required(entry: Any) -> bool:
    """Whether a required pass registers a pattern, also where it is not called under its name."""
    return outermost_function(getattr(entry, "handler", None)) in REQUIRED
