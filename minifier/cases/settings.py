"""The torch settings that a script or its environment has changed, and Python that restores them.

Torch reads environment variables when its config modules are imported, and stores their values as
defaults. The true defaults therefore come from a second copy of each module, which is imported
without these variables.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched

FORCED = Patch(
    "torch.utils._config_module:_ConfigEntry",
    "env_value_force",
    "a setting that an environment variable forces cannot be switched off",
    of_instances=True,
)
ENVIRON = Patch("os", "environ", "the defaults of torch's settings are not known")
PATCHES = (FORCED, ENVIRON)

MODULES = (
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch.fx.experimental._config",
    "torch._inductor.config",
)
"""The modules whose settings can cause a failure."""

NOT_CODE = (
    "cache", "trace.", "debug", "verbose", "dump", "compile_threads", "worker", "log",
    "benchmark_harness", "profil", "repro_", "replay_record",
)  # fmt: skip
"""Parts of the names of settings that do not change what is compiled."""

JUDGED = ("disable", "suppress_errors", "error_on_recompile", "caching_precompile")
"""Settings that would hide a failure in a repro, or cause one."""

VARIABLE = re.compile(r"""["']([A-Z][A-Z0-9_]+)["']""")

_one_at_a_time = threading.Lock()


def changed(name: str) -> dict[str, Any]:
    """Return the changed settings of a module, each with torch's default."""
    module = sys.modules.get(name)
    if module is None:
        return {}
    plain = _relevant(name).items()
    return {setting: given for setting, given in plain if getattr(module, setting, None) != given}


def value(module: ModuleType, name: str) -> Any:
    """Return a setting by its dotted name; None if this version of torch does not have it."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def described(name: str, setting: str) -> str:
    """Return the value of a changed setting, and note if it comes from the environment."""
    entry, plain = vars(sys.modules[name])["_config"][setting], _defaults(name)[setting]
    now, unset = value(sys.modules[name], setting), plain.env_value_force
    read = (entry.env_value_force, entry.env_value_default)
    from_variable = next((given for given in read if given is not unset), entry.default)
    # an override may have the same value: torch leaves one where a setting was patched
    unaffected = (*read, entry.default) == (unset, unset, plain.default)
    shown = repr(now)[:80]
    return shown if unaffected or now != from_variable else f"{shown}, from the environment"


@contextlib.contextmanager
def set_back(name: str, settings: Mapping[str, Any], log: EventLog) -> Iterator[None]:
    """Override settings of a module in this block, including those that a variable forces."""
    module, plain = sys.modules[name], _defaults(name)
    with contextlib.ExitStack() as stack:
        for setting in settings:
            unforced = plain[setting].env_value_force
            entry = vars(module)["_config"][setting]
            stack.enter_context(patched(FORCED, partial(_replacement, unforced), log, on=entry))
        for setting, new in settings.items():  # a patch of torch must end in its own thread
            stack.callback(setattr, module, setting, getattr(module, setting))
            setattr(module, setting, new)
        yield


def _replacement(value: Any, original: Any) -> Any:
    return value


def assignments() -> tuple[str, ...]:
    """Return Python that restores all changed settings whose values are literals, by line."""
    lines: list[str] = []
    for name in MODULES:
        module = sys.modules.get(name)
        values = {s: value(module, s) for s in changed(name)} if module is not None else {}
        written = [f"config.{s} = {v!r}" for s, v in values.items() if is_literal(v)]
        if written:
            package, _, last = name.rpartition(".")
            alias = "" if last == "config" else " as config"
            lines += [f"from {package} import {last}{alias}", *written]
    return tuple(lines)


def is_literal(given: Any) -> bool:
    """Return whether the repr of a value is Python that creates it."""
    if isinstance(given, list | tuple | set):
        return all(is_literal(part) for part in given)
    if isinstance(given, dict):
        return all(is_literal(part) for pair in given.items() for part in pair)
    return given is None or isinstance(given, bool | int | float | str)


@cache
def _relevant(name: str) -> Mapping[str, Any]:
    """Return torch's defaults of the settings of a module that can change what is compiled."""
    plain = _defaults(name)
    return {
        setting: plain[setting].default
        for setting, entry in vars(sys.modules[name])["_config"].items()
        if entry.alias is None
        and not getattr(entry, "deprecated", False)  # reading it would warn
        and setting not in JUDGED
        and not any(part in setting for part in NOT_CODE)
    }


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    """Return the entries of a config module as they are without environment variables."""
    original = sys.modules[name]
    assert original.__file__ is not None
    read = set(VARIABLE.findall(Path(original.__file__).read_text()))
    copy_name = f"{name}_without_environment"
    spec = importlib.util.spec_from_file_location(copy_name, original.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _one_at_a_time:
        sys.modules[copy_name] = module
        plain = {k: v for k, v in os.environ.items() if k not in read}
        try:
            with patched(ENVIRON, partial(_replacement, plain), EventLog(None)):
                spec.loader.exec_module(module)
        finally:
            del sys.modules[copy_name]
    entries: Mapping[str, Any] = vars(module)["_config"]
    return entries
