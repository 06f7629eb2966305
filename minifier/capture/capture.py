"""Repros on demand: every graph of a healthy program as a script of its own.

Nothing is compiled: the graphs run in eager after they have been written down.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback, GraphRecorded, ReproWrite
from tcdebug.compiler.patching import Patch, misfit, patched
from tcdebug.minifier.capture.journal import snug
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, from_captured, tensors_of
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import for_eager, load, module_source
from tcdebug.minifier.judging.replay import run
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros import repro
from tcdebug.minifier.repros.script_setup import Script, script_setup, sets_up
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.describe import describe


class NotWritable(Exception):
    """A graph needs what only the running program has; the message says what."""


@dataclass
class Capture:
    """Writes the graphs that a program compiles.

    `paths` are the scripts, `problems` say of which graphs there are none.
    """

    folder: Path
    log: EventLog
    backend: str | None = None
    """What the scripts compile with, whatever the program names."""
    script: Script | None = None
    """The program, where a repro may run it again up to a graph."""
    only: int | None = None
    """The one graph that is wanted; the program is left as soon as it is written."""
    graphs: int = 0
    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def wrap(self, backend: Any) -> Any:
        """What stands in the place of a backend."""
        if isinstance(backend, _Captured) or sets_up(backend):
            return backend
        return _Captured(self, describe(self.backend or backend, ""))

    def keep(self, case: Case, backend: Backend, ordinal: int) -> None:
        """Write the script of a graph at its first call."""
        try:
            self._write(case, backend, ordinal)
        except Exception as problem:  # the program goes on, and other graphs are written
            self.problems.append(f"graph {ordinal}: {problem}")
            self.log.emit(Fallback(f"graph {ordinal} is not written", str(problem)))
        if ordinal == self.only:
            raise SystemExit(0)

    def _write(self, case: Case, backend: Backend, ordinal: int) -> None:
        path = self.folder / f"graph_{ordinal}.py"
        setup = self._setup(case, backend, ordinal)
        content = repro.Repro(
            Outcome(Kind.OK), backend.call(), (), Ambient.current(), setup,
            added=backend.added(),
        )  # fmt: skip
        inputs = repro.write(simplest(snug(case), path), content, path)
        self.log.emit(ReproWrite(str(path), case.size, inputs))
        self.paths.append(path)

    def _setup(self, case: Case, backend: Backend, ordinal: int) -> str:
        """What the script needs besides the graph: nothing, an import, or the program itself."""
        foreign = module_source(case.module).foreign
        if backend.named and not foreign:
            return ""
        if self.script is not None:
            return script_setup(self.script, ordinal, self.folder, backend.name)
        if foreign:
            raise NotWritable(f"it uses objects of the program: {', '.join(foreign)}")
        return _imported(backend)


@dataclass(eq=False)
class _Captured:
    """A backend that writes its graphs."""

    capture: Capture
    backend: Backend

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        ordinal = self.capture.graphs
        self.capture.graphs += 1
        size = sum(1 for n in module.graph.nodes if n.op.startswith("call"))
        self.capture.log.emit(GraphRecorded(ordinal, size, 0))
        written, eager = self.capture.only not in (None, ordinal), for_eager(module)

        def call(*values: Any) -> Any:
            nonlocal written
            if not written:
                written = True
                case = from_captured(module, values)
                if case.size:
                    self.capture.keep(case, self.backend, ordinal)
            return eager(*values)

        return call


_IMPORTED = """

def set_up():
    import {module}
    CALL["backend"] = {module}.{name}
"""


def _imported(backend: Backend) -> str:
    """Python that imports a backend that is an object."""
    module = getattr(backend.backend, "__module__", None) or ""
    name = getattr(backend.backend, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    if module == "__main__" or found is not backend.backend:
        raise NotWritable(
            f"the backend {backend.name} cannot be imported from anywhere: "
            "give the name of another one, or put it into a module"
        )
    return _IMPORTED.format(module=module, name=name)


def simplest(case: Case, path: Path) -> Case:
    """The case with seeded inputs, where eager takes them as well as its own."""
    seeded = SimplifyInputs()
    simple = seeded.apply(case, seeded.edits(case))
    if simple is None:
        return case
    module = load(case, str(path.with_suffix(".graph.py")))
    with torch.random.fork_rng(devices=[]):
        try:
            same = _finite(run(module, case).outputs) == _finite(run(module, simple).outputs)
        except Exception:
            same = False  # such as an index out of range: only its own will do
    return simple if same else case


def _finite(outputs: Sequence[Any]) -> list[bool]:
    return [bool(torch.isfinite(t).all()) for t in tensors_of(outputs)]


CALL = Patch(
    "torch._dynamo.output_graph:OutputGraph",
    "call_user_compiler",
    "no graph of a call is seen",
)
PATCHES = (CALL,)


@contextlib.contextmanager
def every_backend(wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Let all graphs that are captured in this block go to `wrap` of their backends.

    Also those of functions that were given to torch.compile before. Raises NotWritable where this
    torch cannot be patched so.
    """
    if problem := misfit(CALL):
        raise NotWritable(f"{CALL} is not patched: {problem}")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
            graph.compiler_fn = wrap(_innermost(graph.compiler_fn))
            return original(graph, *args, **kwargs)

        return call

    with patched(CALL, make, EventLog(None)):
        yield


def _innermost(backend: Any) -> Any:
    """A backend without what Dynamo has put around it."""
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend
