"""The state that an answer depends on besides its question: code, settings, global torch state.

Answers outlive the process that produced them. A resumed run may reuse one only if this state is
unchanged. Saving a source file without a change merely discards the answers.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import torch

from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.environment import READ

OWN_VARIABLES = ("TCDEBUG_CXX", "TCDEBUG_OFF")
"""Variables of tcdebug that change what is compiled."""


def surroundings() -> str:
    """Return a hash of the state that a child forked now would start with."""
    names = (*READ, *OWN_VARIABLES)
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(names)]
    parts = [
        *versions(),
        *sorted(_sources()),
        *settings,
        repr(Ambient.current()),
    ]
    return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


def versions() -> tuple[str, ...]:
    """Return the versions of torch (with its commit) and Python, and the machine."""
    commit = str(torch.version.git_version)
    return (torch.__version__, commit, sys.version, platform.machine(), platform.platform())


def _sources() -> Iterator[str]:
    """Yield path, size and modification time of every file that a module was loaded from.

    These are the script, the modules it imports, installed packages, and tcdebug itself.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")  # bypasses hooks of lazy modules
        if isinstance(file, str):
            yield file_version(Path(file))


def file_version(path: Path) -> str:
    """Return path, size and modification time; the path alone if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"
