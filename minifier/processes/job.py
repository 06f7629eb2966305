"""The job of a session process, and how the process is started."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.runtime.toolchain import find
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.script_text import variables_set_first
from tcdebug.minifier.processes.process import Child, Ended, Limits
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.processes.warm.sessions import WarmSessions

SESSION = "tcdebug.minifier.sessions.session"
"""The module of a session process."""
SESSION_IMPORTS = ("tcdebug.minifier.sessions.script_session",)
"""The modules that a process imports before it is forked for sessions."""
INDUCTOR_SETUP = "tcdebug.minifier.targets.inductor.warm.set_up"
"""The function that this process calls before sessions that compile with inductor."""
REPORT = "report.json"
"""The file to which a session writes what it found."""
PARTIAL = "report.partial.json"
"""The file to which it writes what it knows so far, in case it is ended early."""
PASSED = "graph {} counts as passed"
"""Says that a graph, of which this takes the number, differs in what torch does not promise."""
ORDER = (
    "only the order of equal elements differs, which torch promises with `stable=True` only: it "
    "passes if elements are compared instead of positions"
)
"""Why a graph counts as passed, and the note on a step that fails in no other way."""
SCRIPT_FAILED = 71
"""The exit status of a session whose script raised. The traceback is on its stderr."""
NOT_BY_ITSELF = "graph {} is judged only as a part of the script"
"""Says that a graph, of which this takes the number, cannot be judged by itself."""
NOT_CAPTURED = "not captured again"
"""Begins the message about a graph that Dynamo did not capture again, so that it was not judged."""
NO_BACKEND = 72
"""The exit status of a session whose backend is not registered. The run folder has the message."""
WOULD_CHANGE = 75
"""The exit status of a session that ended before it changed what a later run could see."""
NO_END = 74
CANNOT_END = "Dynamo cannot end the capture there"
"""The exit status of a session in which Dynamo cannot end a capture where toggles ask for it, and
the last line of its output then."""
NO_BACKEND_FILE = "no_backend"
INVALID_BACKEND = "InvalidBackend"
"""The exception that torch raises if a script names a backend that is not registered."""
FORKED_BEFORE_CUDA = "candidates were forked from a process that had not initialised CUDA"
"""A note of reports on device graphs whose candidates were forked."""
REPLAYED = "each candidate ran the script from before it initialised CUDA up to the failing graph"
"""The same for candidates that run in replays of the script."""
SCRIPT_ON_DEVICES = "the script, forked before it initialises CUDA"
"""The purpose, in its event, of the process that continues the script after that fork."""
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""The variable that makes torch count devices without initialising CUDA.

It must be set before torch is imported, because some of its modules count devices on import.
"""
FAULT = 70
"""The exit status of a session in which tcdebug failed. The traceback is on stderr."""


RANK_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_", "MASTER_", "TORCHELASTIC_",
)  # fmt: skip
"""The beginnings of the names of the variables that torchrun gives to each process."""


class SessionError(Exception):
    """tcdebug failed in the process that runs the script. The message is the traceback."""


class UnknownBackend(Exception):
    """The backend of a command, or of a script, is not registered; the message says what is."""


class Rank(msgspec.Struct, frozen=True):
    """A script that runs as one of several ranks."""

    script: str
    args: list[str]
    variables: dict[str, str]
    """What torchrun has set, by name."""

    @classmethod
    def of_this_process(cls) -> Rank | None:
        """Return the rank that this process is; None if torchrun has not started it."""
        path = getattr(sys.modules.get("__main__"), "__file__", None)
        if path is None or "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        found = {k: v for k, v in sorted(os.environ.items()) if k.startswith(RANK_VARIABLES)}
        return cls(str(Path(path).resolve()), sys.argv[1:], found)

    @property
    def rank(self) -> int:
        """Its number among all ranks, from 0."""
        return int(self.variables["RANK"])

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return int(self.variables["WORLD_SIZE"])

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"

    def save(self, folder: Path) -> None:
        """Write the rank to a file in a run folder, where `saved_ranks` finds it."""
        path = folder / f"rank-{self.rank}.json"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self))
        fresh.replace(path)


class Job(msgspec.Struct, frozen=True):
    """A script, and what to do while it runs.

    `mode` is a key of `sessions.modes.MODES`: search (judges and investigates graphs), eager
    (compiles nothing), compiled (compiles as the script says), layers (the same without some layers
    of torch), harmless (the same, ending before it changes a file), traced (the same, recording
    what torch reports), watch (leaves repros of failures), capture (leaves a repro of every graph),
    explain (only records what torch reports), profile (also profiles the script), or values
    (compares the values between kernels with eager).
    In the mode minimise, changed versions of the script run instead of the script.
    """

    mode: str
    script: str
    args: list[str]
    run_dir: str
    backend: str | None = None
    toggles: list[str] = []
    bisect: bool = True
    minimise: bool = True
    limits: Limits = Limits()
    seconds: float = 3600.0
    script_seconds: float = 600.0
    """Seconds for minimising a script that fails as a whole."""
    reruns: int = 2000
    wanted: Criteria = Criteria()
    confidence: float = 0.99
    """The confidence that no pass was luck, without which no culprit is named."""
    passes: int = 1
    """The number of runs that must pass before a graph counts as healthy."""
    jobs: int = 1
    """The number of candidates that run at the same time."""
    resume: str | None = None
    """An interrupted run of the same job whose answers are reused."""
    compare: bool = False
    """watch: compare compiled results with those of eager."""
    guards: bool = False
    """watch: compare calls that reuse a capture by Dynamo with a fresh capture."""
    replays: bool = False
    """search: each candidate on a GPU runs the script up to its graph."""
    order_counts: bool = False
    """search: whether the order of equal elements counts, which torch does not promise."""
    every_call: bool = False
    """watch: keep the inputs of every call, for failures that end the process."""
    steps: int = 0
    """profile: the number of steps to measure."""
    rank: Rank | None = None
    """search: run the script as this rank alone, with a fake process group."""
    graph: int | None = None
    """capture: the ordinal of the only graph to write, from 0."""
    output: str = ""
    """capture: the folder of the repros."""
    standalone: bool = False
    """search, capture: repros contain their judge."""
    twice: bool = False
    """values: compare two runs on the same inputs instead of eager."""
    calls: int = 3
    """values: how many calls of each graph are observed."""


def saved_ranks(folder: Path) -> list[Rank]:
    """Return the ranks of which a run folder has files, in order."""
    files = folder.glob("rank-*.json")
    found = (msgspec.json.decode(path.read_bytes(), type=Rank) for path in files)
    return sorted(found, key=lambda rank: rank.rank)


def started_marker(job: Job, pid: int) -> Path:
    """Return the file that marks that a session process has reached the script."""
    return Path(job.run_dir) / f"started-{pid}"


def check_session(job: Job, ended: Ended, output: Path) -> None:
    """Check that a session failed because of the script, not of tcdebug.

    `output` is the file with the output of the session. Raises SessionError, UnknownBackend.
    """
    check_backend(job)
    if ended.returncode == NO_BACKEND:
        last = output.read_text(errors="replace").strip().rpartition("\n")[2]
        if INVALID_BACKEND in last:
            raise UnknownBackend(f"the script names a backend that is not registered: {last}")
    failed = ended.returncode not in (0, None) and not started_marker(job, ended.pid).exists()
    if failed or ended.returncode == FAULT:
        text = output.read_text(errors="replace")
        start = max(text.rfind("Traceback (most recent call last)"), 0)
        raise SessionError(text[start:] or f"the session ended with {ended.returncode}")


def check_backend(job: Job) -> None:
    """Check that no session of a run lacked its backend. Raises UnknownBackend."""
    path = Path(job.run_dir) / NO_BACKEND_FILE
    if path.exists():
        raise UnknownBackend(path.read_text())


def own_caches() -> dict[str, str]:
    """Return environment variables that keep candidates' kernels apart from the user's cache."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(Options.from_env().cache_dir.resolve() / "inductor"),
        # a compiler pool would not survive forks, nor know what a candidate has patched
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def start(
    job: Job,
    output: Path,
    environment: Mapping[str, str],
    limits: Limits | None = None,
    sessions: WarmSessions | None = None,
) -> Child:
    """Start the session process of a job, with its own caches and its output in a file.

    It is forked by `sessions` if they can fork, and is a fresh process otherwise.
    """
    variables = {**os.environ, **own_caches(), **environment}
    executable, option, *arguments = _command(job)
    if sessions is not None and (child := sessions.begin(arguments, variables, output, limits)):
        return child
    return spawn([executable, option, *arguments], variables, output=output, limits=limits)


def start_plain(job: Job, output: Path, environment: Mapping[str, str], limits: Limits) -> Child:
    """Start the script of a job as the user does, without tcdebug in its process."""
    given = {name: value for name, value in environment.items() if not name.startswith("TCDEBUG_")}
    variables = {**os.environ, **own_caches(), **given}
    return spawn([sys.executable, job.script, *job.args], variables, output=output, limits=limits)


@contextlib.contextmanager
def warm_sessions() -> Iterator[WarmSessions]:
    """Yield a process that is forked for sessions. It ends with the block."""
    sessions = WarmSessions({**os.environ, **own_caches(), NVML: "1"}, SESSION_IMPORTS)
    try:
        with contextlib.suppress(OSError):  # without it, sessions are fresh processes
            sessions.start()
        yield sessions
    finally:
        sessions.end()


def early_variables(script: str) -> dict[str, str]:
    """Return the settings of torch that a script makes first: sessions import torch before it."""
    return variables_set_first(Path(script).read_text(errors="replace"), os.environ)


def start_in_foreground(
    job: Job, environment: Mapping[str, str], output: Path | None = None
) -> Child:
    """Start the session process of a job as the user would start the script.

    It has our terminal, so that Ctrl-C reaches it, and uses the user's caches.
    """
    variables = {**os.environ, **early_variables(job.script), **environment}
    return spawn(_command(job), variables, output=output, foreground=True)


def _command(job: Job) -> list[str]:
    """Write the job file, and return the command of the session process.

    The file is replaced atomically, because another session of the same mode may be reading it.
    """
    path = Path(job.run_dir) / f"job-{job.mode}.json"
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(job))
    fresh.replace(path)
    return [sys.executable, "-m", SESSION, str(path)]


def check_compiler() -> None:
    """Check that there is a C++ compiler, with which a search compiles first. Raises NoCompiler.

    With all lowerings off in the environment, no kernel is compiled.
    """
    options = Options.from_env()
    if not options.toggles.rules_out("lower"):
        find(options.compiler)
