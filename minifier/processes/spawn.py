"""Run a command in a child."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child, Limits


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
    """Begin a command that dies with its parent.

    What it prints goes to the file `output`, its standard error to `errors` if that is given; both
    are written anew. Without a file they are ours. In the foreground it has our terminal: it reads
    what is typed and hears Ctrl-C. Otherwise it reads nothing and leads a session of its own.
    Raises OSError where the command cannot be run.
    """
    with contextlib.ExitStack() as files:
        printed = files.enter_context(output.open("wb")) if output else None
        failed = files.enter_context(errors.open("wb")) if errors else printed
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=None if foreground else subprocess.DEVNULL,
            stdout=printed,
            stderr=failed,
            start_new_session=not foreground,
            # what a script leaves running in the foreground is none of our business
            preexec_fn=bound_to_this_process(adopts=not foreground),
        )
    return Child(process.pid, limits, popen=process, leads=not foreground)
