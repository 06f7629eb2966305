"""tcdebug.save_repro(f, x): writes the graphs of one call as repro scripts."""

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
from tcdebug.minifier.repros.verify import verify


class NotSaved(Exception):
    """No repro could be written. The message has the reason and the next step."""


class Saved(msgspec.Struct, frozen=True):
    """The result of the call."""

    paths: list[str]
    problems: list[str]
    """Why parts of the call have no repro."""
    notes: list[str] = []


def save_repro(
    function: Callable[..., Any],
    /,
    *args: Any,
    folder: str | Path | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> list[Path]:
    """Call `function` and write every graph that is compiled in the call as a repro script.

    `function` may be compiled, may compile something itself, or is compiled here. The scripts
    compile with `backend`, or else with the function's own backend, or inductor. Each script
    compares compiled with eager results, with backward if an input requires gradients, and exits
    with 0 while they agree.

    The call is made in eager in a forked child. In this process, Dynamo's compiled code, random
    numbers and modules do not change. If CUDA has been initialised, the call is made in this
    process instead, with a warning, and each script runs in a process of its own. Raises NotSaved.
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
        raise NotSaved("; ".join(saved.problems) or "the call compiled nothing")
    problems = [f"a part of the call has no repro: {problem}" for problem in saved.problems]
    for said in [*saved.notes, *problems]:
        warnings.warn(f"tcdebug: {said}", stacklevel=2)
    return [Path(p) for p in saved.paths]


def _saved_in_child(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call in a forked child."""

    def work(notify: Callable[[str], None]) -> bytes:
        torch.set_num_threads(1)  # a thread pool does not survive a fork
        return msgspec.json.encode(_saved(capture, call))

    log = capture.folder / "capture.log"
    ended = finished(fork(work, output=log))
    if ended.answer is None:
        raise NotSaved(f"the call ended its process; its output is in {log}")
    return msgspec.json.decode(ended.answer, type=Saved)


def _saved_here(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call in this process, and run the repros in fresh processes."""
    with torch.random.fork_rng():
        saved = _saved(capture, call)
    torch._dynamo.reset()  # the program must not use what was compiled here
    notes = [
        "the call was made in this process, because it cannot be forked: its side effects remain, "
        "and compiled code will be compiled again"
    ]
    for path in map(Path, saved.paths):
        result = verify(path)
        path.with_suffix(".log").write_text(result.output)
        if not result.passed:
            notes.append(f"{path} does not pass on its own: see {path.with_suffix('.log')}")
    return msgspec.structs.replace(saved, notes=notes)


def _saved(capture: Capture, call: Callable[[], None]) -> Saved:
    """Make the call and write its graphs."""
    torch._dynamo.reset()
    try:
        with torch.compiler.set_stance("default"), every_backend(capture.wrap):
            call()
    except Exception as error:
        capture.problems.append(f"the call raised {type(error).__name__}: {error}")
    return Saved([str(p) for p in capture.paths], capture.problems)
