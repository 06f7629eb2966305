"""Passes over FX graphs: passes that run as a whole, and single applications of patterns."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.gated import SUPERVISION, unit_of
from tcdebug.compiler.patching import Patch, misfit, owner_of, patched
from tcdebug.compiler.stages.gated_passes import GatedPasses
from tcdebug.minifier.targets.inductor.pass_names import (
    REQUIRED,
    function_name,
    outermost_function,
    pattern_name,
)
from tcdebug.minifier.trace.compile_direction import compile_direction

Function = Callable[..., Any]

FAMILIES = {
    "pre_grad_passes": "pregrad",
    "joint_graph_passes": "joint",
    "post_grad_passes": "postgrad",
}
"""torch's name of a subsystem -> the prefix of its units."""

OBSERVED = tuple(
    Patch(
        "torch.fx.passes.graph_transform_observer:GraphTransformObserver",
        name,
        "passes that an observer announces cannot be switched off",
        takes=("pass_fn",),
    )
    for name in ("apply_graph_pass", "apply_gm_pass")
)
GROUP = Patch(
    "torch._inductor.pattern_matcher:PatternMatcherPass",
    "apply",
    "names of pattern units do not show the group of passes",
)
ENTRIES = tuple(
    Patch(
        f"torch._inductor.pattern_matcher:{entry}",
        "apply",
        "patterns of this kind cannot be switched off",
        takes=("match", "graph", "node"),
    )
    for entry in ("GraphPatternEntry", "LoweringPatternEntry", "ReplacementPatternEntry")
)

CHECK = Patch(
    "torch._inductor.pattern_matcher:PatternEntry",
    "extra_check",
    "patterns whose check raises cannot be switched off",
    of_instances=True,
)

COMPILE = "torch._inductor.compile_fx"
FREEZING = "torch._inductor.freezing"
STAGES = tuple(
    (Patch(owner, name, f"names of pass units do not begin with {family}"), family)
    for owner, name, family in (
        (COMPILE, "pre_grad_passes", "pregrad"),
        (COMPILE, "joint_graph_passes", "joint"),
        (COMPILE, "post_grad_passes", "postgrad"),
        (FREEZING, "freezing_passes", "freezing"),
    )
)
"""Functions that run all passes of a stage, and the family of these passes."""

PRE_GRAD = "torch._inductor.fx_passes.pre_grad"
CALLED_DIRECTLY = tuple(
    Patch(owner, name, "this pass cannot be switched off")
    for owner, name in (
        (PRE_GRAD, "sink_cat_after_pointwise"),
        (PRE_GRAD, "linear_permute_fusion"),
        (PRE_GRAD, "permute_linear_fusion"),
        (PRE_GRAD, "permute_matmul_fusion"),
        (PRE_GRAD, "remove_identity"),
        (PRE_GRAD, "fuse_conv_bn"),
        ("torch._inductor.fx_passes.post_grad", "micro_pipeline_tp_pass"),
        (FREEZING, "constant_fold"),
    )
)
"""Passes that no observer announces. Each takes a graph and may return another one."""

PATCHES = (
    *(patch for patch, _ in STAGES),
    *CALLED_DIRECTLY,
    *OBSERVED,
    GROUP,
    CHECK,
    *ENTRIES,
)

REQUIRED_FAMILY = ""
"""The family inside a required pass, where nothing asks."""
OUTSIDE = "pass"
"""The family of passes that run outside all stages."""


@contextlib.contextmanager
def passes(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every optional pass, and every match of an optional pattern, ask the gate.

    Gated passes of the program ask it too, wherever they run.
    """
    seam = _Seam(gate, log)
    with contextlib.ExitStack() as stack:
        gated = GatedPasses(gate, log, seam.inside_gated, compile_direction)
        stack.enter_context(SUPERVISION.of_process(gated))
        for patch, family in STAGES:
            stack.enter_context(patched(patch, functools.partial(seam.stage, family), log))
        for patch in CALLED_DIRECTLY:
            stack.enter_context(patched(patch, seam.called_directly, log))
        for patch in OBSERVED:
            stack.enter_context(patched(patch, seam.observed, log))
        stack.enter_context(patched(GROUP, seam.pattern_pass, log))
        for patch in ENTRIES:
            stack.enter_context(patched(patch, seam.application, log))
        yield


class _Seam:
    """Wraps the functions that run passes, and tracks the family of the running passes."""

    def __init__(self, gate: Gate, log: EventLog) -> None:
        self._gate = gate
        self._log = log
        self._raised_by_rewrite: BaseException | None = None
        self._families = [OUTSIDE]
        self._group = () if misfit(GROUP) else owner_of(GROUP)

    def stage(self, family: str, original: Function) -> Function:
        """Wrap a function that runs all passes of a stage."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._within(family):
                return original(*args, **kwargs)

        return run

    def observed(self, original: Function) -> Function:
        """Wrap a method of torch's observer, which runs one named pass."""

        @functools.wraps(original)
        def apply(observer: Any, pass_fn: Function) -> Any:
            family = FAMILIES.get(observer.subsystem, self._families[-1])
            if observer.passname in REQUIRED:
                family = REQUIRED_FAMILY
            elif not (unit_of(pass_fn) or self._applies_group(pass_fn)):
                subject = function_name(pass_fn) or observer.passname
                if not self._gate.allows(f"{family}.{observer.passname}", subject):
                    return None
            with self._within(family):
                return original(observer, pass_fn)

        return apply

    def called_directly(self, original: Function) -> Function:
        """Wrap a pass that is called as a function. Outside all stages, the pass is required.

        For example, freezing packs weights and must fold the packing at its end.
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
        """Wrap the method that applies a group of patterns. Each pattern asks for itself.

        If the check of a match raises, the group is applied again, and such checks ask the gate.
        """

        @functools.wraps(original)
        def apply(group: Any, *args: Any, **kwargs: Any) -> Any:
            family = self._families[-1]
            if family != REQUIRED_FAMILY:
                family = FAMILIES.get(group.subsystem, family)
            with self._within(family):
                try:
                    return original(group, *args, **kwargs)
                except Exception as problem:
                    rewriting, self._raised_by_rewrite = self._raised_by_rewrite, None
                    if problem is rewriting or family == REQUIRED_FAMILY:
                        raise
                with self._asking_checks(group, family):
                    return original(group, *args, **kwargs)

        return apply

    @contextlib.contextmanager
    def _asking_checks(self, group: Any, family: str) -> Iterator[None]:
        """Let checks of matches that raise ask the gate: a pattern that is off does not match."""
        with contextlib.ExitStack() as stack:
            entries = {id(entry): entry for of_one in group.patterns.values() for entry in of_one}
            for entry in entries.values():
                if not _belongs_to_required(entry):
                    unit = f"{family}.{pattern_name(entry)}"
                    guarded = functools.partial(self._guarded_check, unit)
                    stack.enter_context(patched(CHECK, guarded, self._log, on=entry))
            yield

    def _guarded_check(self, unit: str, original: Function) -> Function:
        @functools.wraps(original)
        def check(match: Any) -> Any:
            try:
                return original(match)
            except Exception:
                if self._gate.allows(unit, match.output_node().name):
                    raise
                return False

        return check

    def application(self, original: Function) -> Function:
        """Wrap the method that rewrites one match of a pattern."""

        @functools.wraps(original)
        def apply(entry: Any, match: Any, graph: Any, node: Any) -> None:
            family = self._families[-1]
            required = family == REQUIRED_FAMILY or _belongs_to_required(entry)
            if required or self._gate.allows(f"{family}.{pattern_name(entry)}", node.name):
                try:
                    original(entry, match, graph, node)
                except Exception as problem:
                    self._raised_by_rewrite = problem
                    raise

        return apply

    def inside_gated(self, unit: str, required: bool) -> AbstractContextManager[None]:
        """Return a context in which patterns belong to a gated pass of the program."""
        return self._within(REQUIRED_FAMILY if required else unit)

    def _applies_group(self, pass_fn: Function) -> bool:
        """Return whether a pass applies a group of patterns, each of which asks for itself."""
        return isinstance(getattr(pass_fn, "__self__", None), self._group)

    @contextlib.contextmanager
    def _within(self, family: str) -> Iterator[None]:
        self._families.append(family)
        try:
            yield
        finally:
            self._families.pop()


def _belongs_to_required(entry: Any) -> bool:
    """Return whether a required pass registered a pattern, even if it runs outside that pass."""
    return outermost_function(getattr(entry, "handler", None)) in REQUIRED
