"""Runs repro scripts in isolation. Only failures that were observed there are announced."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from tcdebug.compiler.events.search_events import ReproVerify
from tcdebug.minifier.cases.environment import without_settings
from tcdebug.minifier.cases.layer_names import BACKEND, CACHE, CACHES, CUDAGRAPHS, GUARDS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.cache_folders import kernel_cache
from tcdebug.minifier.processes.interpreters import Interpreter, Interpreters
from tcdebug.minifier.processes.job import own_caches
from tcdebug.minifier.processes.process import OVERRUN, Ended, Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.processes.subprocess_hook import environment_without_hook
from tcdebug.minifier.repros.standalone import judges_graph
from tcdebug.minifier.search.repeats import likelihood

SECONDS = 300.0
"""The time that a repro script gives its graph before it reports a hang, in seconds."""

COLD_SECONDS = 60.0
"""The smallest time that a repro of a hang gives its graph if its compiler must rebuild kernels, in
seconds."""
CHECK_SECONDS = 2 * COLD_SECONDS
"""The time for checking the repro of a run, in seconds."""

LEAVES_CODE = frozenset({CACHE, *CACHES, GUARDS[BACKEND]})
"""Layers without which the same code runs. A failure at random easily seems to be theirs."""
OWN_BACKEND = frozenset({CACHE, *CACHES, *GUARDS.values(), CUDAGRAPHS})
"""Layers without which the script's own backend compiles."""
AGAIN, BY_CHANCE = 2, 0.02
"""How often a repro must fail, and pass, if the runs would end as they did by chance with more than
this probability."""

FAILS, PASSES, UNRESOLVED = 1, 0, 125
"""Exit statuses of a repro script."""

SWITCHED = "--switched"
"""The argument that runs a script as it is, with its units off, and under `--only`."""
STATUSES = re.compile(r"^statuses: ([\d ]+)$", re.MULTILINE)
"""The last line that a script prints if it was given `--switched`."""
RESULT = re.compile(r"^found    ", re.MULTILINE)
"""The line with the result of the judge. An error of the script itself ends it without one."""

UNTIMED = re.compile(r"^EXPECTED = \{'kind': '(exception|crash|wrong)'", re.MULTILINE)
"""Begins what a script expects if neither time nor memory tells. Two of its runs may then go on at
the same time."""

KERNELS = "TCDEBUG_KERNELS"
"""The variable with a folder of kernels that the repro of a script need not build again."""

NEEDS_VARIABLES = "os.environ.update("
"""Part of the text of a script that sets variables before it imports torch."""

AS_CALLED = "repro_as_called.py"
"""A variant beside repro.py, with the values that the graph was called with."""
IN_SCRIPT = "repro_in_script.py"
"""A variant beside repro.py that first runs the script up to the graph."""


@dataclass(frozen=True)
class Verified:
    """How a repro script ended in a fresh process in a clean folder."""

    status: int
    seconds: float
    output: str
    judged: bool = True
    """False if it ended before its judge had a result, for example with a SyntaxError. Its exit
    status then says nothing about the failure."""

    @property
    def reproduced(self) -> bool:
        """Whether it failed as expected."""
        return self.judged and self.status == FAILS

    @property
    def passed(self) -> bool:
        """Whether its judge found no failure."""
        return self.judged and self.status == PASSES

    @property
    def late(self) -> bool:
        """Whether it was ended, or not even started, because no time was left."""
        return self.output == LATE.output

    def event(self, path: Path) -> ReproVerify:
        """Return the event that says how the repro at this path ended."""
        return ReproVerify(str(path), self.reproduced, self.status, round(self.seconds, 3))


LATE = Verified(UNRESOLVED, 0.0, "the repro script did not end")


class Settled(Enum):
    """What is known about the repro of a failure."""

    FAILS = "it fails on its own"
    PASSES = "it does not fail on its own"
    UNKNOWN = "it did not end in time"


def settle(path: Path, seconds: float = CHECK_SECONDS) -> Settled:
    """Keep one repro, the simplest that fails as expected, or else the plain one.

    All variants together may take `seconds`.
    """
    others = [path.with_name(name) for name in (AS_CALLED, IN_SCRIPT)]
    output, found, end = "", Settled.PASSES, time.monotonic() + seconds
    for candidate in (path, *others):
        left = end - time.monotonic()
        if not candidate.exists() or found is Settled.FAILS:
            continue
        result = verify(candidate, seconds=left)
        output = output or result.output
        if result.late:
            found = Settled.UNKNOWN
        if result.reproduced:
            output, found = result.output, Settled.FAILS
            for file in _with_data(candidate):
                file.replace(path.with_suffix(file.suffix))
    path.with_name("repro.log").write_text(output)
    for other in others:
        for file in _with_data(other):
            file.unlink()
    return found


def _with_data(path: Path) -> list[Path]:
    """Return a repro script and its stored data, as far as they exist."""
    return [p for p in (path, path.with_suffix(".safetensors")) if p.exists()]


def verify(path: Path, toggles: Sequence[str] = (), seconds: float = SECONDS * 2.5) -> Verified:
    """Run a repro script under toggles, in a folder that holds only the script and its data.

    A toggle is a unit to switch off, or `only:UNIT`. The result is unresolved if the script has not
    ended after `seconds`. Kernels that were built before are not built again.
    """
    if seconds <= 0:
        return LATE
    with kernel_cache() as kernels:
        return _run(path, _arguments(toggles), seconds, variables={KERNELS: str(kernels)})


def verify_plain(path: Path, seconds: float, interpreters: Interpreters | None) -> Verified:
    """Run a script as it is, forked by one of `interpreters` if there is one."""
    ready = _ready(interpreters, path.read_text())
    return _run_by(ready, path, (), seconds) if ready else verify(path, seconds=seconds)


def _ready(interpreters: Interpreters | None, text: str) -> Interpreter | None:
    """Return an interpreter that can run a script, unless the script sets variables for torch."""
    return interpreters.ready() if interpreters and NEEDS_VARIABLES not in text else None


def verify_switched(
    path: Path,
    off: Sequence[str],
    only: Sequence[str],
    seconds: float = SECONDS * 2.5,
    interpreters: Interpreters | None = None,
) -> tuple[Verified, Verified | None, Verified | None]:
    """Run a repro script as it is, with the units `off` switched off, and under `only`.

    The second and third result are None if `off` or `only` is empty. If the script can, it does all
    runs in children of one fresh process. One of `interpreters`, if there is one, forks the first
    process, unless the script sets variables for torch. All runs together may take `seconds`. Two
    runs in processes of their own go on at the same time, unless time or memory tells how they end.
    """
    text, end = path.read_text(), time.monotonic() + seconds

    def first(arguments: Sequence[str]) -> Verified:
        ready = _ready(interpreters, text)
        if ready is None:
            return _run(path, arguments, seconds)
        return _run_by(ready, path, arguments, seconds)

    def within(toggles: Sequence[str]) -> Verified:
        return verify(path, toggles, end - time.monotonic())

    if not off and not only:
        return (first(()) if seconds > 0 else LATE), None, None
    if judges_graph(text):
        result = first([SWITCHED, *_arguments([*off, *only])])
        if found := STATUSES.search(result.output):
            statuses = [replace(result, status=int(s)) for s in found[1].split()]
            rest = iter(statuses[1:])
            return (
                statuses[0],
                next(rest, None) if off else None,
                next(rest, None) if only else None,
            )
    asked = [(), *(toggles for toggles in (off, only) if toggles)]
    with ThreadPoolExecutor(2 if UNTIMED.search(text) else 1) as pool:
        as_is, *others = pool.map(within, asked)
    return as_is, others.pop(0) if off else None, others.pop(0) if only else None


@contextlib.contextmanager
def run_both_ways(
    path: Path, off: Sequence[str], seconds: float, times: int
) -> Iterator[Callable[[], tuple[tuple[Verified, int], tuple[Verified | None, int]]]]:
    """Run a repro as it is and, in parallel, with a layer off if there is one, within `seconds`.

    Yield a function that waits for both.
    """
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(_run_again, path, (), seconds, times)
        passing = pool.submit(_run_again, path, off, seconds, times) if off else None
        yield lambda: (failing.result(), passing.result() if passing else (None, 0))


def _run_again(path: Path, off: Sequence[str], seconds: float, times: int) -> tuple[Verified, int]:
    """Run a repro up to `times`, while it passes with a layer off, or else fails.

    Return the last run, and how many others ended like that.
    """
    end, run = time.monotonic() + seconds, 0
    while True:
        result = verify(path, off, end - time.monotonic())
        run += 1
        if run == times or not (result.passed if off else result.reproduced):
            return result, run - 1


def times_to_confirm(
    off: Sequence[str], runs: Mapping[tuple[str, ...], Outcome], failure: Outcome
) -> int:
    """Return how often a repro must fail, and pass with `off`, to confirm the layer of a script.

    `runs` are those of the script: what was off, and how it ended.

    A script that fails at random may end in just the way that leads to a layer. That is unlikely if
    many runs with its backend ended as the layer predicts.
    """
    if not LEAVES_CODE.intersection(off):
        return 1
    own = [outcome for question, outcome in runs.items() if OWN_BACKEND.issuperset(question)]
    failed = 1 + sum(failure.same_bug(outcome) for outcome in own)
    passed = 1 + sum(outcome.kind is Kind.OK for outcome in own)
    return AGAIN if likelihood(failed, passed) > BY_CHANCE else 1


def contradiction(agreed: int, ended: str, never: str) -> str:
    """Return the note on a repro whose last run contradicted a claim that `agreed` runs showed."""
    if not agreed:
        return never
    return f"it fails in some runs only: the repro {ended} in {agreed} of {agreed + 1} runs"


def _arguments(toggles: Sequence[str]) -> list[str]:
    return [
        f"--only={t.removeprefix('only:')}" if t.startswith("only:") else f"--off={t}"
        for t in toggles
    ]


def python_command() -> str:
    """Return the words that start the Python in which repro scripts run.

    That is "python" if the user's shell finds this interpreter under that name. Another Python may
    lack torch or tcdebug.
    """
    own = Path(sys.executable).absolute()
    found = shutil.which("python")
    if found and Path(found).absolute().parent == own.parent:
        return "python"
    beside = os.path.relpath(own)
    return shlex.quote(beside if len(beside) < len(str(own)) else str(own))


def repro_environment() -> dict[str, str]:
    """Return the environment of a repro script: without settings of torch, with separate caches.

    PYTHONPATH is the user's, because torch and tcdebug may be installed in a folder that it names.
    """
    inherited = without_settings(environment_without_hook())
    environment = {k: v for k, v in inherited.items() if not k.startswith("TCDEBUG_")}
    if cache := os.environ.get("TCDEBUG_CACHE_DIR"):
        environment["TCDEBUG_CACHE_DIR"] = cache
    return environment | {**own_caches(), "TCDEBUG_LOG": "0"}


def run_under(command: Sequence[str], path: Path, seconds: float) -> Verified:
    """Run a repro script under another program, given as the first words of the command."""
    return _run(path, (), seconds, command)


def _run(
    path: Path,
    arguments: Sequence[str],
    seconds: float,
    under: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Verified:
    with tempfile.TemporaryDirectory(prefix="tcdebug-repro-") as place:
        folder, printed, errors = (Path(place, name) for name in ("repro", "stdout", "stderr"))
        folder.mkdir()
        _copy_with_data(path, folder)
        child = spawn(
            [*under, sys.executable, path.name, *arguments],
            {**repro_environment(), **variables},
            folder=folder, output=printed, errors=errors,
            limits=Limits(seconds, None, excuse=OVERRUN),
        )  # fmt: skip
        ended = finished(child)
        output = "".join(file.read_text(errors="replace") for file in (printed, errors))
    return _verified(ended, output)


def _run_by(
    interpreter: Interpreter, path: Path, arguments: Sequence[str], seconds: float
) -> Verified:
    """Run a script in an interpreter that has imported torch."""
    _copy_with_data(path, interpreter.folder)
    return _verified(*interpreter.run([path.name, *arguments], seconds))


def _copy_with_data(path: Path, folder: Path) -> None:
    """Copy a repro script and the files beside it that it names."""
    text = path.read_text()
    for file in path.parent.iterdir():
        if file.is_file() and (file.name.startswith(path.stem) or file.name in text):
            shutil.copy(file, folder)


def _verified(ended: Ended, output: str) -> Verified:
    if ended.returncode is None:
        return replace(LATE, seconds=ended.seconds)
    return Verified(ended.returncode, ended.seconds, output, RESULT.search(output) is not None)
