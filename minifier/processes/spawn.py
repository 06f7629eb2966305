"""Runs a command in a child."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child, Limits


def input_is_file() -> bool:
    """Return whether our standard input is a file, not a terminal, a pipe or closed."""
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def input_again() -> BinaryIO:
    """Open our standard input from its beginning if it is a file; otherwise an empty input.

    A search runs a script several times, and each run must read the same.
    """
    return open("/proc/self/fd/0" if input_is_file() else os.devnull, "rb")


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    output: Path | None = None,
    errors: Path | None = None,
    limits: Limits | None = None,
    foreground: bool = False,
) -> Child:
    """Start a command that dies with its parent.

    Its standard output goes to the file `output`, and its standard error to `errors` if that is
    given. Both files are overwritten. Without a file it shares ours. In the foreground it has our
    terminal: it reads input and receives Ctrl-C. Otherwise it leads its own session, and its input
    is `input_again`. Raises OSError if the command cannot be run.
    """
    with contextlib.ExitStack() as files:
        entered = files.enter_context(input_again())
        printed = files.enter_context(output.open("wb")) if output else None
        failed = files.enter_context(errors.open("wb")) if errors else printed
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=None if foreground else entered,
            stdout=printed,
            stderr=failed,
            start_new_session=not foreground,
            # what a script in the foreground leaves running is not ours to end
            preexec_fn=bound_to_this_process(adopts=not foreground),
        )
    return Child(process.pid, limits, popen=process, leads=not foreground)
