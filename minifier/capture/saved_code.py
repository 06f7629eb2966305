"""Files that a script saves compiled code to, while something else runs in place of that code.

A script may save compiled code and load it again. If something else runs in place of that code, the
file contains only a token, and loading it, or a copy of it, returns what runs instead. The file of
an artifact of `standalone_compile` also holds its graph, which another process runs in eager. Code
from any other file was compiled before, so no layer of it can be switched off: the event
`code.loaded` names the file, unless the script has just written it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import re
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
REPLACES = b"tcdebug: in place of compiled code, "
"""The beginning of a token."""
TOKEN = re.compile(REPLACES + rb"[0-9a-f]{32}")
"""What a file contains in place of compiled code."""
ENDS = 1 << 16
"""How many bytes at the beginning and at the end of a file are searched for a token."""
UNREADABLE = (OSError, ValueError, TypeError, AttributeError)
"""What reading raises if something is no file, is closed, or can only be written."""

Calls = Mapping[str, Callable[..., Any]]
"""What runs in place of the code in a file, by the name of that code."""


@dataclass
class SavedCode:
    """What runs in place of code that a script has saved in this process."""

    log: EventLog
    tokens: dict[bytes, Calls] = field(default_factory=dict)
    """What runs, by the token in a file."""
    unchanged: dict[tuple[str, bytes], Calls] = field(default_factory=dict)
    """What runs, by the path and the digest of a file that existed and was left unchanged.

    A folder has no digest.
    """
    remembered: dict[Any, dict[str, Callable[..., Any]]] = field(default_factory=dict)
    """What runs, by the path of a file that was not made, or by the file object."""
    made: dict[Path, bytes | None] = field(default_factory=dict)
    """Files that were made for a script that looks for them with their contents, and folders."""
    process: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)

    def keep(self, file: Any, calls: Calls, *, folder: bool = False, content: bytes = b"") -> None:
        """Let `calls` be what a later load of this file, or of a copy of it, returns.

        `file` is a path or a file object. It gets `content` and a token. If nothing has the path, a
        file is made, or a folder with such a file. A file with other contents is left unchanged.
        """
        token = REPLACES + uuid.uuid4().hex.encode()
        content = content + token if content else _archive(token)
        if hasattr(file, "write"):
            _write(file, content)
            if place := _place(file):
                self.made[Path(place)] = content
        else:
            path = Path(os.path.realpath(file))
            if path.exists() and not _may_be_replaced(path):
                self.unchanged[str(path), _digest(path)] = calls
                return
            if folder and not path.exists():
                path.mkdir(parents=True)
                self.made[path] = None
            _inside(path).write_bytes(content)
            self.made[_inside(path)] = content
        self.tokens[token] = calls

    def new_file(self, suffix: str) -> str:
        """Return the path of a new, empty file for code that the script saves at no path."""
        number, path = tempfile.mkstemp(prefix="tcdebug-", suffix=suffix)
        os.close(number)
        self.made[Path(path)] = b""
        return path

    def remember(self, file: Any, call: Callable[..., Any], name: str = "") -> None:
        """Do the same for this file alone, without changing it."""
        self.remembered.setdefault(_place(file) or file, {})[name] = call

    def find(self, file: Any, name: str = "") -> Callable[..., Any] | None:
        """Return what runs in place of the code in a file. None if this process did not save it."""
        call = self.kept(file, name)
        if call is None and (_token(file) or not self._is_new(file)):
            self.log.emit(CodeLoaded(_place(file)))
        return call

    def _is_new(self, file: Any) -> bool:
        """Return whether a file was written since this object was made."""
        try:
            return os.stat(_name(file)).st_mtime > self.since
        except OSError:
            return False

    def kept(self, file: Any, name: str = "") -> Callable[..., Any] | None:
        """Return what this process keeps for a file that is not about to be loaded."""
        return self._calls(file).get(name)

    def _calls(self, file: Any) -> Calls:
        if token := _token(file):
            self._remove_later(file, token)
            return self.tokens.get(token, {})
        digest = _digest(file) if self.unchanged else b""
        same = {place: c for (place, other), c in self.unchanged.items() if other == digest}
        if _place(file) in same:
            return same[_place(file)]
        if digest and same:
            return [*same.values()][-1]
        return self.remembered.get(_place(file) or file, {})

    def _remove_later(self, file: Any, token: bytes) -> None:
        """Let a copy of a file that was made be removed with it."""
        if token in self.tokens and (path := _place(file)) and _inside(path).is_file():
            self.made.setdefault(_inside(path), _inside(path).read_bytes())

    def remove(self) -> None:
        """Remove the files that were made, unless something has written to them."""
        if os.getpid() != self.process:
            return  # a fork of the process that made them
        for path, content in reversed(self.made.items()):
            with contextlib.suppress(OSError):
                if content is None:
                    path.rmdir()
                elif path.read_bytes() == content:
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
        self.saved.keep(path, {"": self}, folder=format == "unpacked", content=content)


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
    try:
        content = _inside(path).read_bytes()
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


def _archive(token: bytes) -> bytes:
    """Return an archive with a token, as programs and packages are archives."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tcdebug", token)
    return buffer.getvalue()


def _write(file: Any, content: bytes) -> None:
    """Write to a file object as torch does, which then begins to read at the beginning."""
    file.write(content)
    file.flush()
    if isinstance(file, io.IOBase) and file.seekable():
        file.seek(0)


def _may_be_replaced(path: Path) -> bool:
    """Return whether a file has no contents of the user: it is empty, or made by tcdebug."""
    return (path.is_file() and path.stat().st_size == 0) or bool(_token(path))


def _token(file: Any) -> bytes:
    """Return the token in a file, or in a folder of an artifact; empty if there is none."""
    with contextlib.suppress(*UNREADABLE), _opened(file) as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        ends = content.read(ENDS)
        content.seek(max(size - ENDS, 0))
        if found := TOKEN.search(ends) or TOKEN.search(content.read(ENDS)):
            return found[0]
    return b""


def _digest(file: Any) -> bytes:
    """Return a digest of the contents of a file; empty if it cannot be read."""
    with contextlib.suppress(*UNREADABLE), _opened(file) as content:
        content.seek(0)
        return hashlib.file_digest(content, "blake2b").digest()
    return b""


@contextlib.contextmanager
def _opened(file: Any) -> Iterator[Any]:
    """Open a file, or use a file object, whose position is restored."""
    if not hasattr(file, "read"):
        with _inside(file).open("rb") as content:
            yield content
        return
    position = file.tell()
    try:
        yield file
    finally:
        file.seek(position)


def _inside(path: Any) -> Path:
    """Return the file with a graph if this is the folder of an artifact."""
    return Path(path) / GRAPH if Path(path).is_dir() else Path(path)


def _place(file: Any) -> str:
    """Return the real path of a file or folder; empty if it has no path."""
    return os.path.realpath(_name(file)) if _name(file) else ""


def _name(file: Any) -> str:
    """Return the path of a file; empty for a file object without one."""
    name = getattr(file, "name", "") if hasattr(file, "read") else file
    return str(name) if isinstance(name, str | os.PathLike) else ""
