"""tcdebug.save_repro(f, x): the graphs of one call as repro scripts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from tcdebug.compiler import run_folder
from tcdebug.compiler.event_log import EventLog
from tcdebug.minifier.capture import Capture, every_backend
from tcdebug.minifier.isolation import Limits, run_isolated

UNLIMITED = Limits(seconds=float(1 << 30), memory=1 << 60)


class NotSaved(Exception):
    """No repro could be written; the message says why, and what to do."""


class Saved(msgspec.Struct, frozen=True):
    """What the child that made the call has to say."""

    paths: list[str]
    problems: list[str]


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
    Dynamo has compiled, nor random numbers, nor modules. Raises NotSaved.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch's
        raise NotSaved(
            "a process that uses CUDA cannot be forked; next: tcdebug repro SCRIPT from a shell"
        )
    path = Path(folder) if folder is not None else run_folder.create("repro")
    path.mkdir(parents=True, exist_ok=True)

    def work(notify: Callable[[str], None]) -> bytes:
        torch.set_num_threads(1)  # a pool of threads does not survive a fork
        torch.compiler.set_stance("default")
        torch._dynamo.reset()
        capture = Capture(path, EventLog(None), backend)
        try:
            with every_backend(capture.wrap):
                function(*args, **kwargs)
                if not capture.graphs:
                    torch.compile(function, backend=backend or "inductor")(*args, **kwargs)
        except Exception as error:
            capture.problems.append(f"the call raised {type(error).__name__}: {error}")
        return msgspec.json.encode(Saved([str(p) for p in capture.paths], capture.problems))

    ended = run_isolated(work, UNLIMITED, path / "capture.log")
    if ended.answer is None:
        raise NotSaved(f"the call ended its process; what it printed is in {path / 'capture.log'}")
    saved = msgspec.json.decode(ended.answer, type=Saved)
    if not saved.paths:
        raise NotSaved("; ".join(saved.problems) or "nothing was compiled in the call")
    for problem in saved.problems:
        warnings.warn(f"tcdebug: no repro of a part of the call: {problem}", stacklevel=2)
    return [Path(p) for p in saved.paths]
