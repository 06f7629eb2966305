"""The options that a script gives to torch.compile, each a unit: `option.NAME`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch._inductor.compile_fx
from torch import _TorchCompileWrapper

from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.targets.patching import patched

OURS = "tcdebug"
"""The embedded compiler asks about its options by itself."""


def held_back(gate: Gate, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a script that the gate lets through."""
    return {
        name: value
        for name, value in options.items()
        # random numbers are eager's, or all that is drawn looks wrong
        if name == "fallback_random" or gate.allows(f"option.{name}", repr(value)[:80])
    }


@contextlib.contextmanager
def given_options(gate: Gate) -> Iterator[None]:
    """Every option that inductor, or a backend of a script's, is given asks the gate."""

    def inductor(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_fx(*args: Any, **kwargs: Any) -> Any:
            if options := kwargs.get("config_patches"):
                kwargs["config_patches"] = held_back(gate, options)
            return original(*args, **kwargs)

        return compile_fx

    def other(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, module: Any, inputs: Any) -> Any:
            given = self.kwargs
            if not given.get("options") or self.compiler_name == OURS:
                return original(self, module, inputs)
            options = held_back(gate, given["options"])
            return self.compiler_fn(module, inputs, **{**given, "options": options})

        return call

    with (
        patched(torch._inductor.compile_fx, "compile_fx", inductor),
        patched(_TorchCompileWrapper, "__call__", other),
    ):
        yield
