"""The options that a script passes to torch.compile. Each is a unit: `option.NAME`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._inductor import config

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.layer_names import OWN_RANDOM
from tcdebug.minifier.targets.drawing import may_draw
from tcdebug.minifier.targets.interception import COMPILE_FX

OURS = "tcdebug"
"""The embedded compiler asks about its own options."""

OTHER = Patch(
    "torch:_TorchCompileWrapper",
    "__call__",
    "options of other backends (option.*) cannot be switched off",
)
PATCHES = (OTHER,)


OUTPUT_PATH = "aot_inductor.output_path"
AHEAD = frozenset(
    {
        OUTPUT_PATH,
        "aot_inductor.package",
        "aot_inductor.serialized_in_spec",
        "aot_inductor.serialized_out_spec",
        "cpp_wrapper",
        "fx_wrapper",
    }
)
"""Options that torch adds where AOTInductor compiles. Without them, it makes no package."""


def allowed_options(gate: Gate, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a script that the gate allows, and those that AOTInductor needs."""
    # random numbers must match eager, or every result that depends on them looks wrong
    kept = {"fallback_random"} | (AHEAD if OUTPUT_PATH in options else set())
    return {
        name: value
        for name, value in options.items()
        if name in kept or gate.allows(f"option.{name}", repr(value)[:80])
    }


def draws_itself(graph: Any) -> bool:
    """Return whether inductor would generate the random numbers of a graph, if it draws any."""
    if config.fallback_random or not isinstance(graph, torch.nn.Module):
        return False
    return may_draw(graph)


@contextlib.contextmanager
def given_options(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every option that inductor or a backend of the script receives ask the gate."""

    def inductor(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_fx(*args: Any, **kwargs: Any) -> Any:
            if options := kwargs.get("config_patches"):
                kwargs["config_patches"] = allowed_options(gate, options)
            elif draws_itself(args[0]) and not gate.allows(OWN_RANDOM, "random numbers"):
                kwargs["config_patches"] = {"fallback_random": True}
            return original(*args, **kwargs)

        return compile_fx

    def other(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, module: Any, inputs: Any) -> Any:
            given = self.kwargs
            if not given.get("options") or self.compiler_name == OURS:
                return original(self, module, inputs)
            options = allowed_options(gate, given["options"])
            return self.compiler_fn(module, inputs, **{**given, "options": options})

        return call

    with patched(COMPILE_FX, inductor, log), patched(OTHER, other, log):
        yield
