"""Environment variables of torch and its libraries that may cause a failure.

A repro is run without them, because other users do not have them set. If it does not fail without
them, they are written into the repro.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

READ = (
    "TORCH", "PYTORCH", "ATEN_", "OMP_", "GOMP_", "KMP_", "MKL_", "TRITON_", "CUBLAS_",
)  # fmt: skip
"""Prefixes of the names of relevant variables."""

NO_SETTINGS = (
    "CACHE", "_DIR", "_HOME", "_PATH", "_LOG", "_TRACE", "VERBOSE", "DEBUG",
    "COMPILE_THREADS", "WORKER", "TORCHELASTIC_", "NVML", "ARCH_LIST",
)  # fmt: skip
"""Parts of the names of variables that change no result, such as locations and logging."""


def is_setting(name: str) -> bool:
    """Return whether a variable may change what is compiled or computed."""
    return name.startswith(READ) and not any(part in name for part in NO_SETTINGS)


def given() -> dict[str, str]:
    """Return the settings in the environment of this process."""
    return {name: value for name, value in sorted(os.environ.items()) if is_setting(name)}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without its settings."""
    return {name: value for name, value in environment.items() if not is_setting(name)}


def variables_to_try() -> tuple[Mapping[str, str], ...]:
    """Return the sets of variables that a repro may need, smallest first: none, or all."""
    found = given()
    return ({}, found) if found else ({},)


def text(variables: Mapping[str, str]) -> str:
    """Return Python that sets the variables before torch is imported."""
    if not variables:
        return ""
    return f"\n# the failure needs these variables\nos.environ.update({dict(variables)!r})\n"
