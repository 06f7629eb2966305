"""tcdebug.save_repro(f, x): the graphs of one call as repro scripts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.capture import Capture, every_backend
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import finished
from tcdebug.minifier.repros.verify import PASSES, verify


class NotSaved(Exception):
    """No repro could be written; the message says why, and what to do."""


class Saved(msgspec.Struct, frozen=True):
    """What there is to say of the call."""

    paths: list[str]
    problems: list[str]
    """Why there is no repro of a part of the call."""
    notes: list[str] = []


def save_repro(
    function: Callable[..., Any],
    /,
    *args: Any,
    folder: str | Path | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> list[Path]:
    """Call `function` and write every graph that is compiled in it as a repro script.

    The function is compiled already, or compiles something, or is compiled here; `backend` (or else
    its own, or inductor) is what the scripts compile with. Each compares compiled with eager,
    backward too where an input requires gradients, and exits with 0 as long as they agree.

    The call is made in a forked child, and in eager: nothing of this process changes, neither what
    Dynamo has compiled, nor random numbers, nor modules. Where CUDA is awake there is no fork: the
    call is made here, with a warning, and each script is run in a process of its own. Raises
    NotSaved.
    """
    path = Path(folder) if folder is not None else run_folder.create("repro")
    path.mkdir(parents=True, exist_ok=True)
    capture = Capture(path, EventLog(None), backend)

    def call() -> None:
        function(*args, **kwargs)
        if not capture.graphs:
            torch.compile(function, backend=backend or "inductor")(*args, **kwargs)

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch's
        saved = _saved_here(capture, call)
    else:
        saved = _saved_in_child(capture, call)
    if not saved.paths:
        raise NotSaved("; ".join(saved.problems) or "nothing was compiled in the call")
    problems = [f"no repro of a part of the call: {problem}" for problem in saved.problems]
    for said in [*saved.notes, *problems]:
        warnings.warn(f"tcdebug: {said}", stacklevel=2)
    return [Path(p) for p in saved.paths]


def _saved_in_child(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call in a forked child."""

    def work(notify: Callable[[str], None]) -> bytes:
        torch.set_num_threads(1)  # a pool of threads does not survive a fork
        return msgspec.json.encode(_saved(capture, call))

    log = capture.folder / "capture.log"
    ended = finished(fork(work, output=log))
    if ended.answer is None:
        raise NotSaved(f"the call ended its process; what it printed is in {log}")
    return msgspec.json.decode(ended.answer, type=Saved)


def _saved_here(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call in this process, and run what it leaves in fresh ones."""
    with torch.random.fork_rng():
        saved = _saved(capture, call)
    torch._dynamo.reset()  # what was compiled now is not what the program wants
    notes = [
        "the call was made in this process, which cannot be forked: what it changed stays changed, "
        "and what was compiled will be compiled again"
    ]
    for path in map(Path, saved.paths):
        result = verify(path)
        path.with_suffix(".log").write_text(result.output)
        if result.status != PASSES:
            notes.append(f"{path} does not pass by itself: see {path.with_suffix('.log')}")
    return msgspec.structs.replace(saved, notes=notes)


def _saved(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call with its graphs written down."""
    torch._dynamo.reset()
    try:
        with torch.compiler.set_stance("default"), every_backend(capture.wrap):
            call()
    except Exception as error:
        capture.problems.append(f"the call raised {type(error).__name__}: {error}")
    return Saved([str(p) for p in capture.paths], capture.problems)
