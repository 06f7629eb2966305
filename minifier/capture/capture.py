"""Writes every graph that a program compiles as a repro script.

Nothing is compiled. Each graph runs in eager after it has been written.
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
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import GraphRecorded, ReproWrite
from tcdebug.compiler.patching import Patch, misfit, patched
from tcdebug.minifier.capture.updates import updates_as_inputs
from tcdebug.minifier.capture.watching.journal import without_large_storages
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, from_captured, tensors_of
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import for_eager, load, module_source
from tcdebug.minifier.judging.replay import run
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros import repro
from tcdebug.minifier.repros.fake_group import group_of
from tcdebug.minifier.repros.script_setup import Script, fake_group_setup, script_setup, sets_up
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.stand_ins import StandIn


class NotWritable(Exception):
    """A graph needs what only the running program has; the message says what."""


@dataclass
class Capture:
    """Writes the graphs that a program compiles.

    `paths` are the scripts. `problems` names the graphs that could not be written.
    """

    folder: Path
    log: EventLog
    backend: str | None = None
    """The backend that the scripts compile with, instead of the program's own."""
    script: Script | None = None
    """The program, if a repro may run it again up to a graph."""
    only: int | None = None
    """The ordinal of the one graph to write. The program is left as soon as it is written."""
    standalone: bool = False
    """Whether the scripts contain their judge."""
    graphs: int = 0
    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def wrap(self, backend: Any) -> Any:
        """Return the backend that replaces a backend of the program."""
        if isinstance(backend, _Captured) or sets_up(backend):
            return backend
        return _Captured(self, describe(self.backend or backend, ""), backend)

    def keep(self, case: Case, backend: Backend, ordinal: int) -> None:
        """Write the script of a graph at the graph's first call."""
        try:
            self._write(case, backend, ordinal)
        except Exception as problem:  # the program continues, and other graphs are written
            self.problems.append(f"graph {ordinal}: {problem}")
            self.log.emit(Fallback(f"graph {ordinal} was not written", str(problem)))
        if ordinal == self.only:
            raise SystemExit(0)

    def _write(self, case: Case, backend: Backend, ordinal: int) -> None:
        path = self.folder / f"graph_{ordinal}.py"
        setup = self._setup(case, backend, ordinal)
        content = repro.Repro(
            Outcome(Kind.OK), backend.call(), (), Ambient.current(), setup,
            added=backend.added(), standalone=self.standalone,
        )  # fmt: skip
        inputs = repro.write(simplest(without_large_storages(case), path), content, path)
        self.log.emit(ReproWrite(str(path), case.size, inputs))
        self.paths.append(path)

    def _setup(self, case: Case, backend: Backend, ordinal: int) -> str:
        """Return what the script needs besides the graph: nothing, an import, or the program."""
        foreign = module_source(case.module).foreign
        if backend.named and not foreign:
            group = group_of(case)
            return "" if group is None else fake_group_setup(group)
        if self.script is not None:
            return script_setup(self.script, ordinal, self.folder, backend.name)
        if foreign:
            raise NotWritable(f"it uses objects of the program: {', '.join(foreign)}")
        return _imported(backend)


@dataclass(eq=False, slots=True)
class _Captured(StandIn):
    """A backend that writes its graphs and runs them in eager."""

    capture: Capture
    backend: Backend
    original: Any

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
                case = updates_as_inputs(from_captured(module, values))
                if case.size:
                    self.capture.keep(case, self.backend, ordinal)
            return eager(*values)

        return call


_IMPORTED = """

def set_up(then):
    import {module}
    CALL["backend"] = {module}.{name}
    then()
"""


def _imported(backend: Backend) -> str:
    """Return Python that imports a backend that is an object. Raises NotWritable."""
    module = getattr(backend.backend, "__module__", None) or ""
    name = getattr(backend.backend, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    if module == "__main__" or found is not backend.backend:
        raise NotWritable(
            f"the backend {backend.name} cannot be imported from a module: "
            "give the name of another backend, or move this one into a module"
        )
    return _IMPORTED.format(module=module, name=name)


def simplest(case: Case, path: Path) -> Case:
    """Return the case with seeded inputs if the same results are finite as with its own."""
    seeded = SimplifyInputs()
    simple = seeded.apply(case, seeded.edits(case))
    if simple is None:
        return case
    module = load(case, str(path.with_suffix(".graph.py")))
    with torch.random.fork_rng(devices=[]):
        try:
            same = _finite(run(module, case).outputs) == _finite(run(module, simple).outputs)
        except Exception:
            same = False  # for example, an index is out of range: only the original inputs work
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
    """Pass the backend of every graph that is captured in this block through `wrap`.

    This includes functions that were given to torch.compile before the block. Raises NotWritable if
    this version of torch cannot be patched.
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
    """Return a backend without Dynamo's wrappers."""
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend
