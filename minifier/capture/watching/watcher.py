"""Captures graphs in a program that runs as usual: a failure in a compiled graph leaves a repro.

The repro script of a graph is written before the graph is compiled, and before it first runs
forward or backward, so that it remains if the process ends. It is removed if all goes well. It
stays after an exception, and with `check` after a result that differs from eager's.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CallChecked, GraphRecorded, ReproWrite
from tcdebug.minifier.capture.watching.journal import Journal, Scene
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import flatten, from_captured, size_at_capture
from tcdebug.minifier.cases.exception_identity import root_cause
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.reference.draws import drawn_since
from tcdebug.minifier.judging.replay import SEED, compare, compare_draws, run
from tcdebug.minifier.repros.script_setup import Script, sets_up
from tcdebug.minifier.repros.verify import SECONDS
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.stand_ins import StandIn

OWN_DRAWS = "it draws numbers of its own: only types, shapes and whether values are finite counted"
UPDATES = "the package updates its buffers or inputs"
RAISED = "the compiled call raised an exception"
PATIENCE = 30.0
"""The smallest hang limit, in seconds, of a repro of what a person interrupted."""


@dataclass
class Watcher:
    """Watches the graphs of a process. `repros` are the scripts of failures."""

    folder: Path
    log: EventLog
    script: Script | None = None
    """The script that a repro can run if the graph alone does not fail."""
    check: bool = False
    every_call: bool = False
    """Journal the inputs of every call, not only of each graph's first."""
    graphs: int = 0
    repros: list[Path] = field(default_factory=list)
    backward: dict[int, WatchedGraph] = field(default_factory=dict)
    """The graphs whose backward is running, by thread."""
    interrupted: bool = False
    """Whether one of the repros is of something that a person interrupted."""
    ordinals: Iterator[int] = field(default_factory=itertools.count)
    inside: threading.local = field(default_factory=threading.local)
    """Its attribute `compiling` says whether a graph that is watched is being compiled."""
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder, self.script)

    def wrap(self, backend: Any) -> Any:
        """Return the backend with its graphs watched."""
        if isinstance(backend, WatchedBackend) or sets_up(backend):
            return backend
        return WatchedBackend(self, backend, describe(backend, str(self.folder)))

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Record that this thread compiles a graph. What it gives to inductor is a part of that."""
        before = self.is_compiling
        self.inside.compiling = True
        try:
            yield
        finally:
            self.inside.compiling = before

    @property
    def is_compiling(self) -> bool:
        """Whether this thread compiles a graph that is watched."""
        return getattr(self.inside, "compiling", False)

    def backward_failed(self, error: BaseException) -> None:
        """Keep the repro of the compiled graph whose backward raised an exception, if any."""
        graph = self.backward.pop(threading.get_ident(), None)
        if graph is None:  # autograd's device threads are unknown to Python
            ours = {thread.ident for thread in threading.enumerate()}
            devices = [thread for thread in self.backward if thread not in ours]
            graph = self.backward.pop(devices[-1]) if devices else None
        interrupted = isinstance(error, KeyboardInterrupt)
        if graph is not None and not (interrupted and graph.went_back and not self.every_call):
            graph.watched.stopped(error, graph.scene, "backward", graph.since)

    def keep(self, scene: Scene, outcome: Outcome, seconds: float = SECONDS) -> Path:
        """Write the repro of a failure to stay, and return its path."""
        self.log.emit(outcome.event)
        self.journal.clear(scene)
        self.journal.latest.pop(scene.path, None)
        inputs = self.journal.write(scene, outcome, seconds)
        self.log.emit(ReproWrite(str(scene.path), scene.case.size, inputs))
        if scene.path not in self.repros:
            self.repros.append(scene.path)
        return scene.path

    def ahead(self, scene: Scene, phase: str, *, first: bool) -> None:
        """Keep a repro ready in case the process ends in this phase."""
        if scene.path in self.repros:
            return
        if self.every_call and phase != "compile":
            self.journal.call(scene, phase)
        elif first:
            self.journal.ahead(scene, phase)

    def clear(self, scene: Scene) -> None:
        """Remove the repro that was kept ready, because the graph succeeded."""
        if scene.path not in self.repros:
            self.journal.clear(scene)


@dataclass(eq=False, slots=True)
class WatchedBackend(StandIn):
    """A backend whose graphs are watched."""

    watcher: Watcher
    original: Any
    backend: Backend
    entered: bool = False
    """Whether the script gives its graphs directly to inductor."""

    @property
    def compiler_name(self) -> str:
        """The name of the backend in torch's messages."""
        return self.backend.name

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> WatchedGraph:
        compile_graph: Callable[..., Any] = torch._dynamo.lookup_backend(self.original)
        return self.watch(module, inputs, lambda: compile_graph(module, inputs))

    def watch(
        self, module: fx.GraphModule, inputs: Sequence[Any], compile_graph: Callable[[], Any]
    ) -> WatchedGraph:
        """Compile a graph, and return it as a callable. Both are watched."""
        watcher = self.watcher
        ordinal = next(watcher.ordinals)
        watcher.graphs = ordinal + 1
        case = from_captured(module, [size_at_capture(i) for i in inputs])
        names = tuple(str(n.target) for n in module.graph.nodes if n.op == "placeholder")
        path = watcher.journal.path(ordinal)
        backend = self.backend if self.entered else self.backend.as_captured()
        scene = Scene(case, backend, ordinal, path, Ambient.current(), self.entered)
        watcher.log.emit(GraphRecorded(ordinal, case.size, 0))
        watcher.ahead(scene, "compile", first=True)
        since = time.monotonic()
        try:
            with watcher.compiling():
                compiled = compile_graph()
        except (Exception, KeyboardInterrupt) as error:
            self.stopped(error, scene, "compile", since)
            raise
        watcher.clear(scene)
        return WatchedGraph(self, scene.without_values(), names, compiled)

    def stopped(self, error: BaseException, scene: Scene, phase: str, since: float) -> None:
        """Write the repro, and add its path to the exception."""
        if type(error).__module__ == "torch._dynamo.exc" and "Restart" in type(error).__name__:
            return  # Dynamo restarts a capture this way
        seconds = SECONDS
        if isinstance(error, KeyboardInterrupt):
            self.watcher.interrupted = True
            waited = time.monotonic() - since
            outcome = Outcome(Kind.HANG, phase, f"{phase} | hang", f"stopped after {waited:.0f} s")
            seconds = min(max(waited, PATIENCE), SECONDS)
        else:
            cause = root_cause(error)
            message = f"{type(cause).__name__}: {cause}"
            outcome = Outcome(Kind.EXCEPTION, phase, exception_signature(error, phase), message)
        try:
            path = self.watcher.keep(scene, outcome, seconds)
        except Exception as problem:  # the program's own exception must be seen
            error.add_note(f"tcdebug: no repro could be written: {problem}")
            return
        error.add_note(f"tcdebug: repro {path}\ntcdebug: next  tcdebug bisect {path}")


@dataclass(eq=False)
class WatchedGraph:
    """A compiled graph whose calls are watched."""

    watched: WatchedBackend
    scene: Scene
    """The latest call, while its backward may follow or while it is being judged."""
    names: tuple[str, ...]
    """The names of all arguments. The case leaves out unused ones."""
    compiled: Any
    """The compiled graph, which is called with its arguments."""
    compared: bool = True
    """Whether a check can compare it with eager."""
    calls: int = 0
    went_back: bool = False
    since: float = 0.0
    """The start of the latest phase."""

    def __call__(self, *values: Any) -> Any:
        watcher = self.watched.watcher
        self.calls += 1
        self.scene = self._scene(values)
        if watcher.check:
            self._checked(values)
        self.since = time.monotonic()
        watcher.ahead(self.scene, "forward", first=self.calls == 1)
        try:
            outputs = self.compiled(*values)
        except Exception as error:
            self.watched.stopped(error, self.scene, "forward", self.since)
            raise
        except KeyboardInterrupt as error:
            if self.calls == 1 or watcher.every_call:  # later calls are stopped for other reasons
                self.watched.stopped(error, self.scene, "forward", self.since)
            raise
        if self.calls == 1 or watcher.every_call:
            watcher.clear(self.scene)
        nodes = _backward_nodes(outputs)
        if not nodes:
            self.scene = self.scene.without_values()
        for node in nodes:
            node.register_prehook(self._enter_backward)
            node.register_hook(self._leave_backward)
        return outputs

    def _enter_backward(self, gradients: Any) -> None:
        watcher = self.watched.watcher
        watcher.backward[threading.get_ident()] = self
        self.since = time.monotonic()
        watcher.ahead(self.scene, "backward", first=not self.went_back)

    def _leave_backward(self, inputs: Any, outputs: Any) -> None:
        watcher = self.watched.watcher
        watcher.backward.pop(threading.get_ident(), None)
        if not self.went_back or watcher.every_call:
            self.went_back = True
            watcher.clear(self.scene)

    def _scene(self, values: Sequence[Any]) -> Scene:
        """Return the scene of a call with these values."""
        given = dict(zip(self.names, map(size_at_capture, values), strict=True))
        case = self.scene.case
        now = {i.name: replace(i, value=given[i.name]) for i in case.inputs}
        ambient = Ambient.current(self.scene.ambient.settings)  # settings of the compile
        return replace(self.scene, case=case.with_inputs(now), ambient=ambient)

    def _checked(self, values: Sequence[Any]) -> None:
        """Compare this call with eager if that is possible, and log the verdict."""
        outcome, detail = self._check(values) if self.compared else (None, UPDATES)
        verdict = "not compared" if outcome is None else outcome.kind.value
        name = f"graph {self.scene.ordinal}"
        watcher = self.watched.watcher
        watcher.log.emit(CallChecked("results", name, self.calls, verdict, detail))
        if outcome is not None and outcome.failed:
            watcher.keep(self.scene, outcome)

    def _check(self, values: Sequence[Any]) -> tuple[Outcome | None, str]:
        """Compare this call with eager on copies, forward and backward.

        Return the outcome, if any, and what was compared less strictly, or why nothing was.
        """
        case = self.scene.case
        given = dict(zip(self.names, values, strict=True))

        def compiled(*copies: Any) -> Any:
            named = zip((i.name for i in case.inputs), copies, strict=True)
            now = {**given, **dict(named)}
            return self.compiled(*(now[name] for name in self.names))

        module = load(case, str(self.scene.path.with_name("graph.py")))
        eager = run(module, case)
        own_draws = drawn_since(SEED) and not self.scene.backend.as_in_script().draws_as_eager
        try:
            actual = run(compiled, case)
        except Exception:
            return None, RAISED  # the call itself will raise it
        if own_draws:
            return compare_draws([eager], [actual]), OWN_DRAWS
        return compare(case, module, eager, actual), ""


def _backward_nodes(outputs: Any) -> list[Any]:
    """Return the autograd nodes of compiled backwards, or else the last node of each output."""
    found: dict[int, Any] = {}
    for value in flatten(outputs):
        node = value.grad_fn if isinstance(value, torch.Tensor) else None
        if node is not None:
            compiled = next((n for n in _behind(node) if "CompiledFunction" in n.name()), node)
            found[id(compiled)] = compiled
    return list(found.values())


def _behind(node: Any, depth: int = 3) -> Iterator[Any]:
    """Yield a node and those behind it. A compiled function may be behind views of its output."""
    yield node
    if depth:
        for before, _ in node.next_functions:
            if before is not None:
                yield from _behind(before, depth - 1)
