"""The environment variables that may be behind a failure: what torch and its libraries read.

A repro is run without them, for nobody else has them. Where it does not fail then, they are written
into it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

READ = (
    "TORCH", "PYTORCH", "ATEN_", "OMP_", "GOMP_", "KMP_", "MKL_", "TRITON_", "CUBLAS_",
)  # fmt: skip
"""Beginnings of their names."""

NO_SETTINGS = (
    "CACHE", "_DIR", "_HOME", "_PATH", "_LOG", "_TRACE", "VERBOSE", "DEBUG",
    "COMPILE_THREADS", "WORKER", "TORCHELASTIC_", "NVML",
)  # fmt: skip
"""Parts of the names of those that say where things are, or what is printed."""


def is_setting(name: str) -> bool:
    """Whether a variable may change what is compiled or computed."""
    return name.startswith(READ) and not any(part in name for part in NO_SETTINGS)


def given() -> dict[str, str]:
    """The settings in the environment of this process."""
    return {name: value for name, value in sorted(os.environ.items()) if is_setting(name)}


def without_settings() -> dict[str, str]:
    """The environment of this process as somebody else has it."""
    return {name: value for name, value in os.environ.items() if not is_setting(name)}


def variables_to_try() -> tuple[Mapping[str, str], ...]:
    """What a repro may have to set, the least first: nothing, or all that is given."""
    found = given()
    return ({}, found) if found else ({},)


def text(variables: Mapping[str, str]) -> str:
    """Python that sets variables before torch is imported."""
    if not variables:
        return ""
    return f"\n# it fails only where these are set\nos.environ.update({dict(variables)!r})\n"
