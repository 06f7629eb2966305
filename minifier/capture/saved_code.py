"""Files that a script saves compiled code to, while something else runs in place of that code.

A script may save compiled code and load it again. If something else runs in place of that code, the
file is empty, and loading it returns what runs instead. The file of an artifact of
`standalone_compile` holds its graph, which another process runs in eager. Code from any other file
was compiled before, so no layer of it can be switched off: the event `code.loaded` names the file,
unless the script has just written it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CodeLoaded
from tcdebug.compiler.patching import Make, Patch, patched
from tcdebug.minifier.processes.subprocess_hook import AfterImport

MARK = b"tcdebug: a graph in place of an artifact\n"
"""The first line of a file with a graph."""
GRAPH = "graph.pickle"
"""The file with the graph in the folder of an unpacked artifact."""


@dataclass
class SavedCode:
    """What runs in place of code that a script has saved in this process, by file."""

    log: EventLog
    calls: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    """What runs, by file and by the name of the code in that file."""
    made: dict[Path, int] = field(default_factory=dict)
    """Files that were made for a script that looks for them with their sizes, and folders."""
    process: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)

    def keep(
        self,
        file: Any,
        call: Callable[..., Any],
        name: str = "",
        *,
        folder: bool = False,
        content: bytes = b"",
    ) -> None:
        """Let `call` be what a later load of this file returns. A file may hold several, by name.

        `file` is a path or a file object. If nothing has the path, a file with this content is
        made, or a folder with such a file. A file that exists is left unchanged.
        """
        self.remember(file, call, name)
        if hasattr(file, "write") or (path := Path(file)).exists():
            return
        if folder:
            path.mkdir(parents=True)
            self.made[path] = 0
            path /= GRAPH
        path.write_bytes(content)
        self.made[path] = len(content)

    def new_file(self, suffix: str) -> str:
        """Return the path of a new, empty file for code that the script saves at no path."""
        number, path = tempfile.mkstemp(prefix="tcdebug-", suffix=suffix)
        os.close(number)
        self.made[Path(path)] = 0
        return path

    def remember(self, file: Any, call: Callable[..., Any], name: str = "") -> None:
        """Do the same without making a file, which another process would take for its own."""
        self.calls[_key(file), name] = call

    def find(self, file: Any, name: str = "") -> Callable[..., Any] | None:
        """Return what runs in place of the code in a file. None if this process did not save it."""
        call = self.kept(file, name)
        if call is None and not self._is_new(file):
            self.log.emit(CodeLoaded(os.path.realpath(_name(file)) if _name(file) else ""))
        return call

    def _is_new(self, file: Any) -> bool:
        """Return whether a file was written since this object was made."""
        try:
            return os.stat(_name(file)).st_mtime > self.since
        except OSError:
            return False

    def kept(self, file: Any, name: str = "") -> Callable[..., Any] | None:
        """Return what this process keeps for a file that is not about to be loaded."""
        return self.calls.get((_key(file), name))

    def remove(self) -> None:
        """Remove the files that were made, unless something has written to them."""
        if os.getpid() != self.process:
            return  # a fork of the process that made them
        for path, size in reversed(self.made.items()):
            with contextlib.suppress(OSError):
                if path.is_dir():
                    path.rmdir()
                elif path.stat().st_size == size:
                    path.unlink()


@dataclass(frozen=True)
class SavableStandIn:
    """What a script gets instead of an artifact of `standalone_compile`."""

    call: Callable[..., Any]
    saved: SavedCode
    module: Any
    """The graph."""
    examples: Sequence[Any] = ()
    """Arguments of a call when it is saved, since later calls may be made in another process."""

    def __call__(self, *args: Any) -> Any:
        """Call the stand-in."""
        return self.call(*args)

    def save(self, *, path: str, format: str = "binary") -> None:
        """Let `CompiledArtifact.load` return this stand-in. Takes the arguments of an artifact."""
        if self.examples and all(isinstance(e, int) or _has_values(e) for e in self.examples):
            self.call(*(e.clone() if torch.is_tensor(e) else e for e in self.examples))
        content = _pickled(self.module)
        self.saved.keep(path, self, folder=format == "unpacked", content=content)


def _has_values(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_meta


def _pickled(module: Any) -> bytes:
    """Return a graph as the content of a file; an empty one if it cannot be written."""
    try:
        return MARK + pickle.dumps(module)
    except Exception:  # such as an operator that is defined in a function
        return b""


def saved_graph(path: str) -> Any:
    """Return the graph that another process saved in place of an artifact; None if it did not."""
    file = Path(path)
    if file.is_dir():
        file /= GRAPH
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return pickle.loads(content[len(MARK) :]) if content.startswith(MARK) else None


def patched_when_imported(
    stack: contextlib.ExitStack, patch: Patch, make: Make, log: EventLog
) -> None:
    """Install a patch until the stack is closed, at once or after its module is imported."""
    module = patch.owner.partition(":")[0]

    def install() -> None:
        stack.enter_context(patched(patch, make, log))

    if module in sys.modules:
        install()
    else:  # the module takes long to import
        hook = AfterImport({module: install})
        sys.meta_path.insert(0, hook)
        stack.callback(hook.wanted.clear)


def _key(file: Any) -> Any:
    return os.path.realpath(_name(file)) if _name(file) else id(file)


def _name(file: Any) -> str:
    """Return the path of a file; empty for a file object without one."""
    name = getattr(file, "name", "") if hasattr(file, "read") else file
    return str(name) if isinstance(name, str | os.PathLike) else ""
