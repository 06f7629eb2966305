"""What a session process is asked to do, and how it is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.minifier.cases.criteria import Wanted
from tcdebug.minifier.processes.process import Child, Ended, Limits
from tcdebug.minifier.processes.spawn import spawn

REPORT = "report.json"
"""Where a session writes what it found."""
PARTIAL = "report.partial.json"
"""Where it writes what it knows so far, for when it is ended early."""
SCRIPT_FAILED = 71
"""Exit status of a session whose script raised; the traceback is on its stderr."""
NO_BACKEND = 72
"""Exit status of a session whose backend is not registered; the message is in the run folder."""
NO_BACKEND_FILE = "no_backend"
INVALID_BACKEND = "InvalidBackend"
"""What torch raises where a script names a backend that is not registered."""
FORKED_BEFORE_CUDA = "candidates were forked from a process that had not initialised CUDA"
"""What a report says where a graph of a device was searched in forked candidates."""
SCRIPT_ON_DEVICES = "the script, forked before it initialises CUDA"
"""The purpose of the process that goes on with a script then, as its event says it."""
FAULT = 70
"""Exit status of a session that failed by a fault of ours; its traceback is the last it printed."""


class SessionFault(Exception):
    """tcdebug failed in the process that runs the script; the message is its traceback."""


class UnknownBackend(Exception):
    """The backend of a command, or of a script, is not registered; the message says what is."""


class Job(msgspec.Struct, frozen=True):
    """A script, and what to do while it runs.

    `mode` names a row of `sessions.modes.MODES`: search (graphs are judged and investigated),
    eager (nothing is compiled), compiled (as the script says), layers (the same
    without some layers of torch), watch (failures leave repros), capture (every graph leaves one)
    or explain (torch is only listened to).
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
    reruns: int = 2000
    wanted: Wanted = Wanted()
    confidence: float = 0.99
    """How sure it must be that no pass was luck, or no culprit is named."""
    passes: int = 1
    """Runs of a graph that have to pass before it is taken to be well."""
    jobs: int = 1
    """Candidates that run at the same time."""
    resume: str | None = None
    """An interrupted run of the same job, whose answers still hold."""
    compare: bool = False
    """watch: compare compiled results with those of eager."""
    guards: bool = False
    """watch: compare calls that reuse what Dynamo captured with a capture from scratch."""
    every_call: bool = False
    """watch: keep the inputs of every call, for a failure that ends the process."""
    graph: int | None = None
    """capture: the only graph that is wanted, counted from 0."""
    output: str = ""
    """capture: the folder of the repros."""


def begun(job: Job, pid: int) -> Path:
    """The file that says that a session process got as far as running the script."""
    return Path(job.run_dir) / f"begun-{pid}"


def check_session(job: Job, ended: Ended, output: Path) -> None:
    """Make sure that a session failed by the script, not by tcdebug.

    `output` is what the session printed. Raises SessionFault, UnknownBackend.
    """
    check_backend(job)
    if ended.returncode == NO_BACKEND:
        last = output.read_text(errors="replace").strip().rpartition("\n")[2]
        if INVALID_BACKEND in last:
            raise UnknownBackend(f"the script names a backend that is not registered: {last}")
    failed = ended.returncode not in (0, None) and not begun(job, ended.pid).exists()
    if failed or ended.returncode == FAULT:
        text = output.read_text(errors="replace")
        start = max(text.rfind("Traceback (most recent call last)"), 0)
        raise SessionFault(text[start:] or f"the session ended with {ended.returncode}")


def check_backend(job: Job) -> None:
    """Make sure that no session of a run missed its backend. Raises UnknownBackend."""
    path = Path(job.run_dir) / NO_BACKEND_FILE
    if path.exists():
        raise UnknownBackend(path.read_text())


def own_caches() -> dict[str, str]:
    """Environment by which inductor keeps kernels of candidates apart from the user's."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(Options.from_env().cache_dir.resolve() / "inductor"),
        # a pool of compilers would not survive the forks, nor be told what a candidate has patched
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def start(
    job: Job,
    output: Path,
    environment: Mapping[str, str],
    limits: Limits | None = None,
) -> Child:
    """Start the session process of a job, with caches of its own; it prints to a file."""
    variables = {**os.environ, **own_caches(), **environment}
    return spawn(_command(job), variables, output=output, limits=limits)


def start_in_foreground(
    job: Job, environment: Mapping[str, str], output: Path | None = None
) -> Child:
    """Start the session process of a job as the script would be started by hand.

    It has our terminal, so Ctrl-C reaches it, and the user's caches.
    """
    variables = {**os.environ, **environment}
    return spawn(_command(job), variables, output=output, foreground=True)


def _command(job: Job) -> list[str]:
    """The command of the session process, and the file that it reads its job from.

    The file is replaced as a whole: another session of the mode may be reading it.
    """
    path = Path(job.run_dir) / f"job-{job.mode}.json"
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(job))
    fresh.replace(path)
    return [sys.executable, "-m", "tcdebug.minifier.sessions.session", str(path)]
