"""Gives the calls of AOTInductor's packages a range in a profile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.profiler import record_function

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.exports import AOT_LOAD, LOAD, ONLY_MODEL, named_by_call
from tcdebug.minifier.capture.saved_code import patched_when_imported

RANGE = "tcdebug package {}"
"""The name of a range; the package's file and, if it is not the only one, its program."""


@contextlib.contextmanager
def packages_ranged(called: Callable[[str], None], log: EventLog) -> Iterator[None]:
    """Let each call of a package that is loaded in this block be a range, which is `called`."""

    def loading(original: Callable[..., Any]) -> Callable[..., Any]:
        named = named_by_call(original)

        def load(*args: Any, **options: Any) -> Any:
            path, model = named(*args, **options)
            file = Path(path).name if isinstance(path, str | os.PathLike) else "in memory"
            name = file if model in ("", ONLY_MODEL) else f"{file} {model}"
            return RangedPackage(original(*args, **options), RANGE.format(name), called)

        return load

    with contextlib.ExitStack() as patches:
        for load in (LOAD, AOT_LOAD):
            patched_when_imported(patches, load, loading, log)
        yield


@dataclass(frozen=True)
class RangedPackage:
    """A loaded package. Everything but its calls is that of the package."""

    loaded: Any
    name: str
    called: Callable[[str], None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the package in a range."""
        self.called(self.name)
        with record_function(self.name):
            return self.loaded(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["loaded"], name)
