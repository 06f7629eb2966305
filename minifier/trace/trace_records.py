"""Translates records of torch's structured trace, which Dynamo, AOTAutograd and inductor write.

A record is {kind: details} with the compile it belongs to, and usually a text. The records come
from a running program (`torch_trace`) or from the files that TORCH_TRACE writes
(`tcdebug logs import`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import (
    CacheUsed,
    CompileMetrics,
    GraphBreak,
    GuardSummary,
    Recompile,
    SizeChanged,
    StageEnd,
    StageText,
)
from tcdebug.minifier.cases.user_frames import TRACEBACK, TracebackFrame, frames
from tcdebug.minifier.trace.guards import count_guards, value_guards
from tcdebug.minifier.trace.inductor_code import generated_events
from tcdebug.minifier.trace.inductor_steps import inductor_steps

STAGES: Mapping[str, str] = {
    "entire_frame_compile": "frame",
    "bytecode_tracing": "dynamo",
    "backend_compile": "backend",
    "_recursive_pre_grad_passes": "pre_grad",
    "create_aot_dispatcher_function": "aot_autograd",
    "_recursive_joint_graph_passes": "joint",
    "min_cut_rematerialization_partition": "partition",
    "entire_backward_compile": "backward",
    "inductor_compile": "inductor",
    "_recursive_post_grad_passes": "post_grad",
    "GraphLowering.run": "lowering",
    "Scheduler.__init__": "scheduling",
    "Scheduler.codegen": "codegen",
    "compile_file": "kernel_compile",
    "async_compile.wait": "kernel_wait",
    "build_guards": "guards",
}
"""Trace spans that are stages. The trace also has spans of single passes and of waiting."""

GRAPHS: Mapping[str, str] = {
    "dynamo_output_graph": "capture",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
    "before_pre_grad_graph": "capture",
    "after_pre_grad_graph": "capture",
    "before_joint_graph": "",
    "after_joint_graph": "",
    "before_post_grad_graph": "",
    "inductor_post_grad_graph": "",
    "inductor_output_code": "",
}
"""Records whose text is a graph or code, with the direction if the name implies it."""

COMPILED = ("forward", "backward", "inference")
"""Directions whose graphs AOTAutograd gives to inductor, forward before backward."""
POST_GRAD = ("before_post_grad_graph", "inductor_post_grad_graph")
"""Graphs of the direction that inductor compiles now, which they do not name."""

CACHES: Mapping[str, str] = {"fx_graph_cache": "inductor", "aotautograd_cache": "aot_autograd"}

PROVENANCE_NODES = "inductor_provenance_tracking_node_mappings"
PROVENANCE_LINES = "inductor_provenance_tracking_kernel_stack_traces"

AHEAD_OF_TIME = "inductor_aot_wrapper_code"
"""The record of the C++ that calls the kernels of a package."""

METRICS = ("compilation_metrics", "bwd_compilation_metrics")
PHASES: Mapping[str, str] = {
    "dynamo_compile_time_before_restart_us": "restarts",
    "pre_grad_pass_time_us": "pre_grad",
    "joint_graph_pass_time_us": "joint",
    "post_grad_pass_time_us": "post_grad",
    "aot_autograd_cumulative_compile_time_us": "aot_autograd",
    "inductor_cumulative_compile_time_us": "inductor",
    "inductor_code_gen_cumulative_compile_time_us": "codegen",
    "triton_compile_time_us": "kernel_wait",
}

DIRECTION = re.compile(r"# AOT ID: \['\d+_(\w+)'\]")

EventWithContext = tuple[Event, dict[str, Any]]
"""An event and its context besides the compile."""


@dataclass
class Translator:
    """Writes the events of records. It pairs the ends of spans, so each process needs its own."""

    log: EventLog
    strings: dict[int, str] = field(default_factory=dict)
    """File names by number. The trace writes each name once and then refers to it by number."""
    open: dict[str, list[float]] = field(default_factory=dict)
    """Start times of the spans that have not ended, by name."""
    direction: dict[str, str] = field(default_factory=dict)
    """The graph of each compile that was seen last."""
    waiting: dict[str, list[str]] = field(default_factory=dict)
    """The directions of each compile for which there is no code yet, in the order of compilation.

    AOTAutograd shows all its graphs before inductor compiles the first.
    """
    code: dict[str, str] = field(default_factory=dict)
    """The generated code of each compile that was seen last."""
    graph: dict[str, str] = field(default_factory=dict)
    """The graph of that code."""
    nodes: dict[str, Mapping[str, list[str]]] = field(default_factory=dict)
    """The nodes of the calls in that code."""

    def feed(self, metadata: Mapping[str, Any], payload: str, **context: Any) -> None:
        """Write the events of one record. `context` is added to their envelopes."""
        compiled = compile_id(metadata)
        for event, more in self._events(metadata, payload, compiled):
            self.log.emit(event, **{"compile_id": compiled, **context, **more})

    def _events(
        self, metadata: Mapping[str, Any], payload: str, compiled: str
    ) -> Iterator[EventWithContext]:
        first: tuple[str, Any] = next(iter(metadata.items()), ("", None))
        kind, details = first
        if kind == "artifact":
            name = str(details.get("name"))
        elif kind == "graph_dump" and details.get("name") == AHEAD_OF_TIME:
            self.code[compiled] = payload
            return
        elif kind == "str":
            self.strings[details[1]] = details[0]
            return
        else:
            name = kind
        if name in GRAPHS:
            yield from self._graph(name, payload, compiled)
        elif name in METRICS:
            yield self._metrics(details, backward=name != METRICS[0])
        elif name == "chromium_event":
            yield from self._span(payload)
        elif name == PROVENANCE_NODES:
            self.nodes[compiled] = _lists((_json(payload) or {}).get("cppCodeToPost"))
        elif name == PROVENANCE_LINES:
            where = {"stage": "codegen", "direction": self.direction.get(compiled, "")}
            code, graph = self.code.get(compiled, ""), self.graph.get(compiled, "")
            nodes = self.nodes.pop(compiled, {})
            for step in inductor_steps(code, graph, nodes, _lists(_json(payload))):
                yield step, where
        elif reader := READERS.get(name):
            yield from reader(self.log, payload)
        elif name.rpartition("_")[0] in CACHES:
            cache, _, verdict = name.rpartition("_")
            found = _json(payload)
            key = str(found.get("key") or "") if isinstance(found, dict) else ""
            where = {"stage": CACHES[cache]}
            if cache == "fx_graph_cache":  # one answer for each graph, after its code
                where["direction"] = self.direction.get(compiled, "")
            yield CacheUsed(verdict, key, 0.0), where

    def _graph(self, name: str, text: str, compiled: str) -> Iterator[EventWithContext]:
        """Save a graph or generated code as text. For code, also yield its kernels and calls."""
        if not text:
            return
        waiting = self.waiting.setdefault(compiled, [])
        if named := DIRECTION.search(text):
            self.direction[compiled] = named[1]
            waiting[:] = [d for d in waiting if d != named[1]]
        elif GRAPHS[name]:
            self.direction[compiled] = GRAPHS[name]
            if name.startswith("aot_") and GRAPHS[name] in COMPILED:
                waiting[:] = [*(d for d in waiting if d != GRAPHS[name]), GRAPHS[name]]
        elif name in POST_GRAD and waiting:
            self.direction[compiled] = waiting[0]
        where = {"stage": name, "direction": self.direction.get(compiled, "")}
        path = self.log.save(f"ir/{compiled.replace('/', '_') or 'graph'}.{name}.py", text)
        yield StageText(path), where
        if name == "inductor_post_grad_graph":
            self.graph[compiled] = text
        if name == "inductor_output_code":
            self.code[compiled] = text
            for event in generated_events(text, path):
                yield event, where

    def _metrics(self, details: Mapping[str, Any], *, backward: bool) -> EventWithContext:
        def count(name: str) -> int:
            return int(details.get(name) or 0)

        phases = {
            phase: round(count(name) / 1e6, 6) for name, phase in PHASES.items() if count(name)
        }
        failure = " ".join(str(details.get(k) or "") for k in ("fail_type", "fail_reason")).strip()
        event = CompileMetrics(
            str(details.get("co_name") or ""),
            backward,
            count("graph_node_count"),
            count("guard_count"),
            count("num_graph_breaks"),
            round(count("duration_us") / 1e6, 6),
            phases,
            failure[:4000],
        )
        return event, {"user_loc": _frame_of(details), "stage": "frame"}

    def _span(self, payload: str) -> Iterator[EventWithContext]:
        """Yield a stage when its span ends. Spans of different threads are matched by name."""
        span = _json(payload)
        if not isinstance(span, dict):
            return
        name = str(span.get("name"))
        if name == "automatic_dynamic":
            arguments = {k: str(v) for k, v in (span.get("args") or {}).items()}
            given = (arguments.get(k, "") for k in ("name", "reason", "cached", "new"))
            yield SizeChanged(*given), {"stage": "dynamo"}
        stage = STAGES.get(name)
        if stage is None:
            return
        if span.get("ph") == "B":
            self.open.setdefault(name, []).append(float(span["ts"]))
        elif span.get("ph") == "E" and self.open.get(name):
            seconds = (float(span["ts"]) - self.open[name].pop()) / 1e6
            compiled = str((span.get("args") or {}).get("compile_id") or "")
            context = {"compile_id": compiled} if compiled else {}
            yield StageEnd(0, 0, True, round(seconds, 6)), {"stage": stage, **context}


def compile_id(metadata: Mapping[str, Any]) -> str:
    """Return the compile that a record belongs to, in torch's notation; empty if there is none."""
    if metadata.get("frame_id") is None:
        autograd = metadata.get("compiled_autograd_id")
        return "" if autograd is None else f"!{autograd}"
    plain = f"{metadata['frame_id']}/{metadata.get('frame_compile_id', 0)}"
    autograd = metadata.get("compiled_autograd_id")
    return plain if autograd is None else f"!{autograd}/{plain}"


def _graph_break(log: EventLog, text: str) -> Iterator[EventWithContext]:
    """Yield the reason without Dynamo's own traceback, and the line of the break in any frame."""
    stack = frames(text.partition(TRACEBACK)[0])
    reason = text.partition("\n\nUser code traceback:")[0]
    reason = reason.partition("Graph Break Reason: ")[2] or reason
    yield GraphBreak(reason), {"stage": "dynamo", "user_loc": _place(stack)}


def _recompiled(log: EventLog, text: str) -> Iterator[EventWithContext]:
    """Yield one event per compile. Its `reason` has a line for each cached graph that did not fit.

    The trace declares the text to be JSON, but a single reason is plain text.
    """
    found = _json(text)
    reasons = [str(r) for r in found] if isinstance(found, list) else [text]
    plain = [" ".join(r.partition("\nUser stack trace:")[0].split()) for r in reasons]
    stack = (frame for reason in reasons for frame in frames(reason))
    yield Recompile("\n".join(plain)), {"stage": "dynamo", "user_loc": _place(stack)}


def _guards(log: EventLog, text: str) -> Iterator[EventWithContext]:
    event = GuardSummary(count_guards(text), value_guards(text), log.save("ir/guards.txt", text))
    yield event, {"stage": "guards"}


def _place(stack: Iterable[TracebackFrame]) -> dict[str, Any]:
    """Return the innermost named frame; empty if there is none."""
    named = [frame for frame in stack if frame.function]
    if not named:
        return {}
    return {"filename": named[-1].file, "line": named[-1].line, "name": named[-1].function}


def _frame_of(details: Mapping[str, Any]) -> dict[str, Any]:
    if not details.get("co_filename"):
        return {}
    return {
        "filename": str(details["co_filename"]),
        "line": int(details.get("co_firstlineno") or 0),
        "name": str(details.get("co_name") or ""),
    }


def _lists(found: Any) -> Mapping[str, list[str]]:
    """Return a decoded mapping of lists; empty if it is something else."""
    return found if isinstance(found, dict) else {}


def _json(text: str) -> Any:
    """Decode JSON; None if the text is not JSON, which happens even to records declared as such."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


READERS: Mapping[str, Callable[[EventLog, str], Iterator[EventWithContext]]] = {
    "dynamo_graph_break_reason": _graph_break,
    "recompile_reasons": _recompiled,
    "dynamo_cpp_guards_str": _guards,
}
