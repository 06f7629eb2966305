"""What an answer rests on besides its question: code, settings, global state of torch.

Answers outlive the process that got them. A resumed run may use one only if all of this is as it
was; a file that was saved again without a change merely costs the answers.
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

OF_OURS = ("TCDEBUG_CXX", "TCDEBUG_OFF")
"""Variables of ours that change what is compiled."""


def surroundings() -> str:
    """A hash of what a forked child would start with here and now."""
    names = (*READ, *OF_OURS)
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(names)]
    parts = [
        *versions(),
        *sorted(_sources()),
        *settings,
        repr(Ambient.current()),
        str(torch.get_float32_matmul_precision()),
    ]
    return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


def versions() -> tuple[str, ...]:
    """Torch to the commit, Python, and the machine that compiles."""
    commit = str(torch.version.git_version)
    return (torch.__version__, commit, sys.version, platform.machine(), platform.platform())


def _sources() -> Iterator[str]:
    """Path, size and time of change of every file that a module was loaded from.

    That covers the script, what it imports of its own, installed packages, and tcdebug itself.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")  # no hooks of lazy modules
        if isinstance(file, str):
            yield file_version(Path(file))


def file_version(path: Path) -> str:
    """Path, size and time of change; the path alone where there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"
