"""The event with what a run's results may depend on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from tcdebug import __version__
from tcdebug.compiler.events.run_events import EnvSnapshot

VARIABLES = ("TORCH", "TCDEBUG_", "OMP_", "MKL_", "KMP_", "GOMP_", "CUDA_VISIBLE", "PYTORCH_")
"""Prefixes of the environment variables on which a compile may depend."""


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
