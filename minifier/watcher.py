"""Capture in a program that runs as usual: whatever fails in a compiled graph leaves a repro.

Before a graph is compiled, or runs forward or backward for the first time, its repro script is
written, so that a crash of the process leaves one; it is removed again when all went well. An
exception, or with `check` a result that differs from eager's, makes it stay.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import GraphRecorded, ReproWrite
from tcdebug.minifier import repro
from tcdebug.minifier.ambient import Ambient
from tcdebug.minifier.case import Case, flatten, from_captured
from tcdebug.minifier.outcome import Kind, Outcome, exception_signature, root_cause
from tcdebug.minifier.recorder import describe
from tcdebug.minifier.reductions.simplify_inputs import SimplifyInputs
from tcdebug.minifier.replay import compare, run
from tcdebug.minifier.script_setup import Script, script_setup, sets_up
from tcdebug.minifier.source import load
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.verify import IN_SCRIPT


@dataclass
class Watcher:
    """Watches the graphs of a process. `repros` are the scripts that failures left."""

    folder: Path
    log: EventLog
    script: Script | None = None
    """What a repro can fall back on where the graph alone does not fail."""
    check: bool = False
    graphs: int = 0
    repros: list[Path] = field(default_factory=list)
    backward: _WatchedGraph | None = None
    """The graph whose backward is running."""

    def wrap(self, backend: Any) -> Any:
        """The backend with its graphs watched."""
        if isinstance(backend, _Watched) or sets_up(backend):
            return backend
        return _Watched(self, backend, describe(backend, str(self.folder)))

    def backward_failed(self, error: Exception) -> None:
        """An exception came out of torch.autograd: if it is a compiled graph's, keep its repro."""
        graph, self.backward = self.backward, None
        if graph is not None:
            graph.watched.failed(error, graph.scene, "backward")

    def keep(self, scene: Scene, outcome: Outcome) -> Path:
        """Write the repro of a failure where it stays; its path."""
        self.log.emit(outcome.event)
        inputs = self._write(scene, outcome)
        self.log.emit(ReproWrite(str(scene.path), scene.case.size, inputs))
        if scene.path not in self.repros:
            self.repros.append(scene.path)
        return scene.path

    def _write(self, scene: Scene, outcome: Outcome) -> str:
        """Write the repro, and beside it one that runs the script up to the graph."""
        seeded = SimplifyInputs()
        simple = seeded.apply(scene.case, seeded.edits(scene.case)) or scene.case
        bare = repro.Repro(outcome, scene.backend.call(), ambient=scene.ambient)
        if self.script is not None:
            scene.path.parent.mkdir(parents=True, exist_ok=True)
            setup = script_setup(self.script, scene.ordinal, scene.path.parent)
            repro.write(simple, replace(bare, setup=setup), scene.path.with_name(IN_SCRIPT))
        return repro.write(simple, bare, scene.path)

    def write_ahead(self, scene: Scene, phase: str) -> None:
        """Let a repro lie ready for the case that the process dies in this phase."""
        if scene.path in self.repros:
            return
        outcome = Outcome(Kind.CRASH, phase, f"{phase} | crash", f"the process ended in {phase}")
        with contextlib.suppress(Exception):  # what cannot be written down runs all the same
            self._write(scene, outcome)

    def clear(self, scene: Scene) -> None:
        """The graph went well: take away what lay ready."""
        if scene.path not in self.repros:
            shutil.rmtree(scene.path.parent, ignore_errors=True)


@dataclass(frozen=True)
class Scene:
    """A graph where it runs: what its repro is made of, and where that is written."""

    case: Case
    backend: Backend
    ordinal: int
    path: Path
    ambient: Ambient


@dataclass(eq=False)
class _Watched:
    """A backend whose graphs are watched."""

    watcher: Watcher
    original: Any
    backend: Backend

    @property
    def compiler_name(self) -> str:
        """What torch calls the backend in its messages."""
        return self.backend.name

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        watcher = self.watcher
        ordinal = watcher.graphs
        watcher.graphs += 1
        case = from_captured(module, [_hint(i) for i in inputs])
        names = tuple(str(n.target) for n in module.graph.nodes if n.op == "placeholder")
        path = watcher.folder / "graphs" / str(ordinal) / "repro.py"
        scene = Scene(case, self.backend, ordinal, path, Ambient.current())
        watcher.log.emit(GraphRecorded(ordinal, case.size, 0))
        watcher.write_ahead(scene, "compile")
        try:
            compiled = _resolved(self.original)(module, inputs)
        except Exception as error:
            self.failed(error, scene, "compile")
            raise
        watcher.clear(scene)
        return _WatchedGraph(self, scene, names, compiled)

    def failed(self, error: Exception, scene: Scene, phase: str) -> None:
        """Write the repro, and say in the exception where it is."""
        if type(error).__module__ == "torch._dynamo.exc" and "Restart" in type(error).__name__:
            return  # how Dynamo starts a capture over
        cause = root_cause(error)
        message = f"{type(cause).__name__}: {cause}"
        outcome = Outcome(Kind.EXCEPTION, phase, exception_signature(error, phase), message)
        path = self.watcher.keep(scene, outcome)
        error.add_note(f"tcdebug: repro {path}\ntcdebug: next  tcdebug bisect {path}")


@dataclass(eq=False)
class _WatchedGraph:
    """A compiled graph whose calls are watched."""

    watched: _Watched
    scene: Scene
    """Its first call, or the one that is judged."""
    names: tuple[str, ...]
    """Of all arguments; the case leaves out those that are not used."""
    compiled: Callable[..., Any]
    calls: int = 0
    went_back: bool = False

    def __call__(self, *values: Any) -> Any:
        watcher = self.watched.watcher
        self.calls += 1
        if self.calls == 1 or watcher.check:
            self.scene = self._scene(values)
        if watcher.check:
            self._check(values)
        if self.calls == 1:
            watcher.write_ahead(self.scene, "forward")
        try:
            outputs = self.compiled(*values)
        except Exception as error:
            self.watched.failed(error, self._scene(values), "forward")
            raise
        if self.calls == 1:
            watcher.clear(self.scene)
        for node in _backward_nodes(outputs):
            node.register_prehook(self._enter_backward)
            node.register_hook(self._leave_backward)
        return outputs

    def _enter_backward(self, gradients: Any) -> None:
        watcher = self.watched.watcher
        watcher.backward = self
        if not self.went_back:
            watcher.write_ahead(self.scene, "backward")

    def _leave_backward(self, inputs: Any, outputs: Any) -> None:
        watcher = self.watched.watcher
        watcher.backward = None
        if not self.went_back:
            self.went_back = True
            watcher.clear(self.scene)

    def _scene(self, values: Sequence[Any]) -> Scene:
        """The graph as it is called now."""
        given = dict(zip(self.names, map(_hint, values), strict=True))
        case = self.scene.case
        now = {i.name: replace(i, value=given[i.name]) for i in case.inputs}
        return replace(self.scene, case=case.with_inputs(now), ambient=Ambient.current())

    def _check(self, values: Sequence[Any]) -> None:
        """Compare this call with eager, on copies, forward and backward."""
        case = self.scene.case
        given = dict(zip(self.names, values, strict=True))

        def compiled(*copies: Any) -> Any:
            named = zip((i.name for i in case.inputs), copies, strict=True)
            now = {**given, **dict(named)}
            return self.compiled(*(now[name] for name in self.names))

        module = load(case, str(self.scene.path.with_name("graph.py")))
        eager = run(module, case)
        try:
            actual = run(compiled, case)
        except Exception:
            return  # the call itself will raise it
        outcome = compare(case, module, eager, actual)
        if outcome.failed:
            self.watched.watcher.keep(self.scene, outcome)


def _backward_nodes(outputs: Any) -> list[Any]:
    """The autograd nodes that run a compiled backward, or else the last ones of each output."""
    found: dict[int, Any] = {}
    for value in flatten(outputs):
        node = value.grad_fn if isinstance(value, torch.Tensor) else None
        if node is not None:
            compiled = next((n for n in _behind(node) if "CompiledFunction" in n.name()), node)
            found[id(compiled)] = compiled
    return list(found.values())


def _behind(node: Any, depth: int = 3) -> Iterator[Any]:
    """A node and those behind it: a view of an output stands before the compiled function."""
    yield node
    if depth:
        for before, _ in node.next_functions:
            if before is not None:
                yield from _behind(before, depth - 1)


def _hint(value: Any) -> Any:
    """A symbolic size as the number that it had when the graph was captured."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint)
    return value


def _resolved(backend: Any) -> Callable[..., Any]:
    if isinstance(backend, str):
        found: Callable[..., Any] = torch._dynamo.lookup_backend(backend)
        return found
    return backend  # type: ignore[no-any-return] # what the script gave as a backend


@contextlib.contextmanager
def compile_patched(wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Let every backend that is given to torch.compile in this block go through `wrap`."""
    original = torch._dynamo.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        if args:
            return original(wrap(args[0]), *args[1:], **kwargs)
        kwargs["backend"] = wrap(kwargs.get("backend", "inductor"))
        return original(**kwargs)

    torch._dynamo.optimize = optimize
    try:
        yield
    finally:
        torch._dynamo.optimize = original


@contextlib.contextmanager
def backward_watched(failed: Callable[[Exception], None]) -> Iterator[None]:
    """Call `failed` with every exception that comes out of a backward pass in this block."""
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                failed(error)
                raise

        return call

    torch.autograd.backward, torch.autograd.grad = reporting(backward), reporting(grad)
    try:
        yield
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad
