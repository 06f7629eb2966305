"""Keeps a changed script from changing the user's files.

Without some of its statements, a script may write something else to its files, such as checkpoints.
Opening such a file for writing, removing it or replacing it raises `FileProtected`, which makes the
version of the script invalid. Files that the process itself created, and everything in the
candidate's own folders, may be changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched

SAVE, SAVE_SCRIPT, SAVE_PROGRAM = (
    Patch(owner, "save", "a version of a script may overwrite files of the user")
    for owner in ("torch", "torch.jit", "torch.export")
)
PATCHES = (SAVE, SAVE_SCRIPT, SAVE_PROGRAM)
"""Functions that write files without Python's `open`."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
CHANGES: Mapping[str, tuple[int, ...]] = {
    "os.remove": (1,),
    "os.rename": (2, 3),
    "os.rmdir": (1,),
    "os.truncate": (),
    "shutil.rmtree": (1,),
    "shutil.move": (),
}
"""Audit event that changes paths -> the positions of folder descriptors among its arguments.

The paths are the first one or two arguments. They may be relative to an open folder.
"""
ALWAYS = (
    "/dev/",
    "/proc/",
    os.path.join(tempfile.gettempdir(), "torchinductor_"),
    os.path.expanduser("~/.triton/"),
    os.path.expanduser("~/.cache/"),
)
"""Beginnings of paths that may be written: devices, and what compilers keep for later runs."""


class FileProtected(PermissionError):
    """A version of a script was about to change a file that belongs to the user."""


@contextlib.contextmanager
def files_protected(allowed: Sequence[Path], log: EventLog) -> Iterator[None]:
    """Protect all files outside the `allowed` folders.

    The check of Python's own file operations stays for the rest of the process, because an audit
    hook cannot be removed. Use it in a forked child.
    """
    below = tuple(f"{folder.resolve()}{os.sep}" for folder in allowed)
    created: set[str] = set()

    def own(place: str) -> bool:
        if f"{place}{os.sep}".startswith((*below, *ALWAYS)):
            return True
        return any(str(folder) in created for folder in (place, *Path(place).parents))

    def check(path: Any) -> None:
        """Refuse to change a path that exists. One that does not is created now."""
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a file descriptor, or a file that is open
        place = os.path.realpath(os.fsdecode(path))
        if own(place):
            return
        if os.path.lexists(place):
            raise FileProtected(f"a smaller version of this script may not change {place}")
        created.add(place)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITING:
            if not (isinstance(args[0], str) and os.path.isdir(args[0])):  # where tempfile creates
                check(args[0])
        elif event == "os.mkdir":
            with contextlib.suppress(FileProtected):  # it changes nothing that exists
                check(args[0])
        elif event in CHANGES:
            folders = [args[k] for k in CHANGES[event] if k < len(args)]
            if all(folder in (-1, None) for folder in folders):  # else part of a larger change
                for path in args[:2]:
                    check(path)

    def saving(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **kwargs: Any) -> Any:
            for path in (*args[1:2], *(kwargs[k] for k in ("f", "path_or_file") if k in kwargs)):
                check(path)
            return original(*args, **kwargs)

        return save

    sys.addaudithook(audit)
    with contextlib.ExitStack() as stack:
        for patch in PATCHES:
            stack.enter_context(patched(patch, saving, log))
        yield
