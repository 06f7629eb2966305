"""Capture in a program that runs as usual: whatever fails in a compiled graph leaves a repro.

Before a graph is compiled its repro script is written, so that a crash of the process leaves one;
it is removed again when the graph has compiled and run. An exception, or with `check` a result
that differs from eager's, makes it stay.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import Failure, GraphRecorded, ReproWrite
from tcdebug.minifier import repro
from tcdebug.minifier.ambient import Ambient
from tcdebug.minifier.case import Case, from_captured
from tcdebug.minifier.outcome import Kind, Outcome, exception_signature, root_cause
from tcdebug.minifier.recorder import describe
from tcdebug.minifier.reductions.simplify_inputs import SimplifyInputs
from tcdebug.minifier.replay import compare, run
from tcdebug.minifier.source import load
from tcdebug.minifier.targets.backends import Backend


@dataclass
class Watcher:
    """Watches the graphs of a process. `repros` are the scripts that failures left."""

    folder: Path
    log: EventLog
    check: bool = False
    graphs: int = 0
    repros: list[Path] = field(default_factory=list)

    def wrap(self, backend: Any) -> Any:
        """The backend with its graphs watched."""
        if isinstance(backend, _Watched):
            return backend
        return _Watched(self, backend, describe(backend, str(self.folder)))

    # -- what happened ----------------------------------------------------------------------

    def failed(self, case: Case, backend: Backend, outcome: Outcome, folder: Path) -> Path:
        """Write the repro of a failure where it stays; its path."""
        self.log.emit(
            Failure(
                outcome.kind.value, outcome.signature, outcome.direction, outcome.message[:2000]
            )
        )
        path = folder / "repro.py"
        inputs = self._write(case, backend, outcome, path)
        self.log.emit(ReproWrite(str(path), case.size, inputs))
        if path not in self.repros:
            self.repros.append(path)
        return path

    def _write(self, case: Case, backend: Backend, outcome: Outcome, path: Path) -> str:
        seeded = SimplifyInputs()
        simple = seeded.apply(case, seeded.edits(case)) or case
        content = repro.Repro(outcome, backend.call(), ambient=Ambient.current())
        return repro.write(simple, content, path)

    @contextlib.contextmanager
    def ahead(self, case: Case, backend: Backend, phase: str, folder: Path) -> Iterator[None]:
        """While this is open, a repro lies ready for the case that the process dies."""
        outcome = Outcome(Kind.CRASH, phase, f"{phase} | crash", f"the process ended in {phase}")
        with contextlib.suppress(Exception):  # what cannot be written down runs all the same
            self._write(case, backend, outcome, folder / "repro.py")
        yield
        if folder / "repro.py" not in self.repros:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False)
class _Watched:
    """A backend whose graphs are watched."""

    watcher: Watcher
    original: Any
    backend: Backend

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        watcher = self.watcher
        ordinal = watcher.graphs
        watcher.graphs += 1
        folder = watcher.folder / "graphs" / str(ordinal)
        case = from_captured(module, [_hint(i) for i in inputs])
        watcher.log.emit(GraphRecorded(ordinal, case.size, 0))
        try:
            with watcher.ahead(case, self.backend, "compile", folder):
                compiled = _resolved(self.original)(module, inputs)
        except Exception as error:
            self._noted(error, case, "compile", folder)
            raise
        return _WatchedGraph(self, case, compiled, folder)

    def _noted(self, error: Exception, case: Case, phase: str, folder: Path) -> None:
        """Write the repro, and say in the exception where it is."""
        if type(error).__module__ == "torch._dynamo.exc" and "Restart" in type(error).__name__:
            return  # how Dynamo starts a capture over
        cause = root_cause(error)
        message = f"{type(cause).__name__}: {cause}"
        outcome = Outcome(Kind.EXCEPTION, phase, exception_signature(error, phase), message)
        path = self.watcher.failed(case, self.backend, outcome, folder)
        error.add_note(f"tcdebug: repro {path}\ntcdebug: next  tcdebug bisect {path}")


@dataclass(eq=False)
class _WatchedGraph:
    """A compiled graph whose calls are watched."""

    watched: _Watched
    case: Case
    compiled: Callable[..., Any]
    folder: Path
    calls: int = 0

    def __call__(self, *values: Any) -> Any:
        watcher = self.watched.watcher
        first = self.calls == 0
        self.calls += 1
        if watcher.check:
            self._check(values)
        try:
            if not first:
                return self.compiled(*values)
            with watcher.ahead(self.case, self.watched.backend, "forward", self.folder):
                return self.compiled(*values)
        except Exception as error:
            self.watched._noted(error, self._case(values), "forward", self.folder)
            raise

    def _case(self, values: Sequence[Any]) -> Case:
        given = [_hint(v) for v in values]
        named = {i.name for i in self.case.inputs}
        return from_captured(self.case.module, given) if len(named) == len(given) else self.case

    def _check(self, values: Sequence[Any]) -> None:
        """Compare this call with eager, on copies, forward and backward."""
        case = self._case(values)
        module = load(case, str(self.folder / "graph.py"))
        eager = run(module, case)
        try:
            actual = run(self.compiled, case)
        except Exception:
            return  # the call itself will raise it
        outcome = compare(case, module, eager, actual)
        if outcome.failed:
            self.watched.watcher.failed(case, self.watched.backend, outcome, self.folder)


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
