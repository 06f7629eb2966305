"""Ends a process before it changes anything that a later run of the script could see."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import patched
from tcdebug.minifier.processes.job import WOULD_CHANGE
from tcdebug.minifier.subjects.protected_files import ALWAYS, PATCHES, WRITING

CHANGES = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink",
    "os.chmod", "os.chown", "os.utime", "shutil.",
)  # fmt: skip
"""Beginnings of the names of audit events whose first arguments are paths that change."""
STARTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.kill", "subprocess.Popen", "sqlite3.connect",
    "socket.connect", "socket.bind",
)  # fmt: skip
"""The same for programs, databases and connections."""


@contextlib.contextmanager
def ended_before_changes(allowed: Sequence[Path], log: EventLog) -> Iterator[None]:
    """End this process with WOULD_CHANGE before it changes a file or starts a program.

    It may change what lies below the `allowed` folders. It has a folder for temporary files of its
    own, which is removed at the end. The check of Python's own operations stays for the rest of the
    process, because an audit hook cannot be removed. Extensions that write files are not seen.
    """
    temporary = Path(os.path.realpath(tempfile.mkdtemp(prefix="tcdebug-")))
    folders = (temporary, *allowed)
    below = (*ALWAYS, *(os.path.join(folder.resolve(), "") for folder in folders))
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)

    def is_own(path: Any, folder: Any = None) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a file that is open
        around = f"/proc/self/fd/{folder}" if isinstance(folder, int) and folder >= 0 else ""
        place = os.path.realpath(os.path.join(around, os.fsdecode(path)))
        return f"{place}{os.sep}".startswith(below)

    def is_between_own(address: Any) -> bool:
        """Return whether a socket connects processes of the script, as a data loader does."""
        return isinstance(address, str) and address.startswith(f"{temporary}/pymp-")

    def check(event: str, *own: bool) -> None:
        if not all(own):
            os.write(2, f"ended before {event}\n".encode())
            shutil.rmtree(temporary, ignore_errors=True)
            os._exit(WOULD_CHANGE)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITING:
            in_folder = isinstance(args[0], str) and os.path.isdir(args[0])  # a nameless file
            check(f"{args[0]} was opened for writing", in_folder or is_own(args[0]))
        elif event.startswith(CHANGES):
            paths = [a for a in args if isinstance(a, str | bytes | os.PathLike)]
            folders = [a for a in args if isinstance(a, int)]
            check(event, *(is_own(path, folders[-1] if folders else None) for path in paths))
        elif event.startswith(STARTS):
            check(event, event.startswith("socket.") and is_between_own(args[1]))

    def saving(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **kwargs: Any) -> Any:
            paths = [*args[1:2], *(kwargs[k] for k in ("f", "path_or_file") if k in kwargs)]
            check("a file was saved", *map(is_own, paths))
            return original(*args, **kwargs)

        return save

    sys.dont_write_bytecode = True
    sys.addaudithook(audit)
    with contextlib.ExitStack() as stack:
        for patch in PATCHES:
            stack.enter_context(patched(patch, saving, log))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield
