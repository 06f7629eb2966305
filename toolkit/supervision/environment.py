"""What the results of a run may depend on: versions, variables, and the user's caches of graphs."""

from __future__ import annotations

import getpass
import os
import platform
import re
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tcdebug import __version__
from tcdebug.compiler.events.run_events import EnvSnapshot

VARIABLES = ("TORCH", "TCDEBUG_", "OMP_", "MKL_", "KMP_", "GOMP_", "CUDA_VISIBLE", "PYTORCH_")
"""Prefixes of the environment variables on which a compile may depend."""

GRAPH_CACHES = ("fxgraph", "aotautograd")
"""The folders in inductor's cache with compiled graphs."""
UNUSED = (
    "no run used the graphs cached in {folder}: if the script fails without tcdebug, run it with "
    "TORCHINDUCTOR_CACHE_DIR set to an empty folder; if it then passes, a cached graph is wrong"
)

DISABLING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""The variables with which torch compiles nothing if they are 1."""
DISABLED = "torch.compile does nothing, because {variable} is 1: unset it, and search again"


def environment() -> EnvSnapshot:
    """Return the installed versions, without importing torch."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "not installed"
    variables = {k: v for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)}
    return EnvSnapshot(
        __version__, torch, platform.python_version(), platform.platform(), os.cpu_count() or 1,
        variables,
    )  # fmt: skip


def disabled() -> list[str]:
    """Return a note if the environment makes torch compile nothing."""
    return [DISABLED.format(variable=v) for v in DISABLING if os.environ.get(v) == "1"][:1]


def unused_caches() -> list[str]:
    """Return a note on the graphs in the user's caches, if there are any."""
    folder = cache_folder()
    cached = any(any((folder / name).glob("*")) for name in GRAPH_CACHES)
    return [UNUSED.format(folder=folder)] if cached else []


def cache_folder() -> Path:
    """Return the folder of inductor's caches, which torch names after the user by default."""
    if given := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(given)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no entry for its user
        user = f"uid_{os.getuid()}"
    user = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir(), f"torchinductor_{user}")
