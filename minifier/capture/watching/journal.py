"""Keeps repros ready on disk while graphs compile or run, in case the process ends meanwhile.

Each graph has a folder with its repro scripts, and with a mark while the graph is active. A mark
that remains after the process has ended shows where it ended; see `running`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from tcdebug.minifier.capture.watching.running import RUNNING, mark, unmark
from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, CaseInput, relations, tensors_of
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.stored import LiveTensors
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros import repro
from tcdebug.minifier.repros.part_inputs import PartInputs
from tcdebug.minifier.repros.script_setup import Script, script_setup
from tcdebug.minifier.repros.verify import AS_CALLED, IN_SCRIPT, SECONDS
from tcdebug.minifier.targets.backends import Backend

ENDED_SECONDS = 60.0
"""The time limit of a repro of a process that ended, in seconds: it may have been a hang."""
MOST_BYTES = 16 << 20
"""Inputs above this size in bytes are stored only if every call is journalled."""


@dataclass(frozen=True)
class Scene:
    """A graph and the state in which it runs: what its repro needs, and where it is written."""

    case: Case
    backend: Backend
    ordinal: int
    path: Path
    ambient: Ambient
    entered: bool = False
    """Whether the script gives the graph directly to inductor."""

    def without_values(self) -> Scene:
        """Return the scene without the tensors of a call, which it would keep alive."""
        empty = {i.name: replace(i, value=None) for i in self.case.inputs}
        return replace(self, case=self.case.with_inputs(empty))


@dataclass
class Journal:
    """Writes the repros of a process's graphs, both in advance and on failure."""

    folder: Path
    script: Script | None = None
    """The script that a repro can run if the graph alone does not fail."""
    pid: int = field(default_factory=os.getpid)
    """The process whose folders are named by ordinal alone. Forked processes add their pid."""
    latest: dict[Path, Latest] = field(default_factory=dict)

    def path(self, ordinal: int) -> Path:
        """Return the path of the repro of a graph in this process."""
        own = os.getpid()
        name = str(ordinal) if own == self.pid else f"{ordinal}-{own}"
        return self.folder / "graphs" / name / "repro.py"

    def write(self, scene: Scene, outcome: Outcome, seconds: float = SECONDS) -> str:
        """Write a repro, with variants that may fail if it does not; see `verify.settle`."""
        seeded = SimplifyInputs()
        case = without_large_storages(scene.case)
        simple = seeded.apply(case, seeded.edits(case)) or case
        values_matter = outcome.phase != "compile" and _bytes(case) <= MOST_BYTES
        as_called = case if values_matter else simple
        variables = environment.given()
        bare = repro.Repro(
            outcome, scene.backend.call(), ambient=scene.ambient, seconds=seconds,
            added=scene.backend.added(),
        )  # fmt: skip
        if self.script is not None:
            scene.path.parent.mkdir(parents=True, exist_ok=True)
            setup = self._setup(self.script, scene)
            in_script = replace(bare, setup=setup, variables=variables)
            if not scene.backend.named:
                return repro.write(as_called, in_script, scene.path)
            repro.write(simple, in_script, scene.path.with_name(IN_SCRIPT))
        if as_called is not simple or variables:
            here = replace(bare, variables=variables)
            repro.write(as_called, here, scene.path.with_name(AS_CALLED))
        return repro.write(simple, bare, scene.path)

    def ahead(self, scene: Scene, phase: str) -> None:
        """Keep a repro ready in case the process ends in this phase."""
        with contextlib.suppress(Exception):  # a graph that cannot be written still runs
            self.write(scene, ended_in(phase), ENDED_SECONDS)
            mark(scene.path, os.getpid(), phase)

    def call(self, scene: Scene, phase: str) -> None:
        """Keep a repro of this call ready. Only values that have changed are written."""
        with contextlib.suppress(Exception):  # a graph that cannot be written still runs
            latest = self.latest.get(scene.path)
            if latest is None or not latest.follow(scene):
                self.latest[scene.path] = self._first(scene, phase)
            mark(scene.path, os.getpid(), phase)

    def _first(self, scene: Scene, phase: str) -> Latest:
        """Write a repro with stored inputs, and return what keeps them up to date."""
        case = without_large_storages(scene.case)
        content = repro.Repro(
            ended_in(phase), scene.backend.call(), ambient=scene.ambient, seconds=ENDED_SECONDS,
            added=scene.backend.added(),
        )  # fmt: skip
        path = scene.path
        if self.script is not None and not scene.backend.named:
            path.parent.mkdir(parents=True, exist_ok=True)
            setup = self._setup(self.script, scene)
            content = replace(content, setup=setup)
        repro.write(case, content, path, store=True)
        tensors = _written(case)
        live = LiveTensors(path.with_suffix(".safetensors"), tensors)
        return Latest(live, _numbers(case), scene.ambient)

    def _setup(self, script: Script, scene: Scene) -> str:
        folder, name = scene.path.parent, scene.backend.name
        return script_setup(script, scene.ordinal, folder, name, entered=scene.entered)

    def clear(self, scene: Scene) -> None:
        """Remove a repro that was kept ready, except for what the next call needs."""
        if scene.path in self.latest:
            unmark(scene.path)
        else:
            shutil.rmtree(scene.path.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove what is left of graphs that succeeded."""
        for path in self.latest:
            if not path.with_name(RUNNING).exists():
                shutil.rmtree(path.parent, ignore_errors=True)
        self.latest.clear()


@dataclass(frozen=True)
class Latest:
    """The stored inputs of the latest call of a graph."""

    tensors: LiveTensors
    numbers: list[object]
    ambient: Ambient

    def follow(self, scene: Scene) -> bool:
        """Write the values of another call. Return False if they do not fit the script."""
        case = without_large_storages(scene.case)
        tensors = _written(case)
        fits = _numbers(case) == self.numbers and scene.ambient == self.ambient
        return fits and self.tensors.follow(tensors)


def _written(case: Case) -> list[torch.Tensor]:
    """Return the tensors that a script stores, in order."""
    return list(tensors_of([i.value for i in PartInputs.of(case).inputs]))


def _numbers(case: Case) -> list[object]:
    """Return what a script says about its inputs besides their contents."""
    numbers = [i.value for i in case.inputs if not isinstance(i.value, torch.Tensor)]
    return [*numbers, *relations(case.values())]


def _bytes(case: Case) -> int:
    return sum(v.numel() * v.element_size() for v in tensors_of(case.values()))


def ended_in(phase: str) -> Outcome:
    """Return the outcome of a process that ended in a phase and left no one to say how."""
    return Outcome(Kind.CRASH, phase, f"{phase}{repro.ENDED}", f"the process ended in {phase}")


def without_large_storages(case: Case) -> Case:
    """Copy the views of much larger tensors, so that the whole memory need not be stored."""
    owners: dict[int, int] = {}
    for value in tensors_of(case.values()):
        if value.layout == torch.strided and not is_wrapper(value):
            key = value.untyped_storage().data_ptr()
            owners[key] = owners.get(key, 0) + 1

    def copied(spec: CaseInput) -> CaseInput:
        value = spec.value
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return spec
        if is_wrapper(value):
            return spec
        storage = value.untyped_storage()
        alone = owners[storage.data_ptr()] == 1
        if not alone or storage.nbytes() <= 2 * value.numel() * value.element_size():
            return spec
        copy = value.detach().clone().requires_grad_(value.requires_grad)
        return replace(spec, value=copy if value.is_leaf else copy.clone())

    return case.with_inputs({i.name: copied(i) for i in case.inputs})
