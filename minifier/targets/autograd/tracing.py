"""Settings of AOTAutograd's trace, and a context that is entered while AOTAutograd traces."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._functorch import config

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases import settings as settings_of_torch

CONFIG = "torch._functorch.config"
AUTOCAST = "autograd.backward_autocast"
MUTATION = "autograd.input_mutation"
SETTING = "autograd.config"

ANALYSIS = Patch(
    "torch._functorch.aot_autograd",
    "create_aot_state",
    "autograd.*, except autograd.output_alias, cannot be switched off",
    takes=("aot_config",),
)
CAPTURE = Patch(
    "torch._functorch.aot_autograd",
    "aot_stage1_graph_capture",
    "autograd.*, except autograd.output_alias, cannot be switched off",
)
PATCHES = (ANALYSIS, CAPTURE)

AOT_CONFIG = 4
"""The position of `aot_config` among the arguments of the analysis."""

Function = Callable[..., Any]


@contextlib.contextmanager
def traced_within(
    enter: Callable[[], AbstractContextManager[None]], log: EventLog
) -> Iterator[None]:
    """Enter a context whenever AOTAutograd analyses or traces a graph in this block."""

    def tracing(original: Function) -> Function:
        @functools.wraps(original)
        def trace(*args: Any, **kwargs: Any) -> Any:
            with enter():
                return original(*args, **kwargs)

        return trace

    with patched(ANALYSIS, tracing, log), patched(CAPTURE, tracing, log):
        yield


@contextlib.contextmanager
def settings(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let changed settings, autocast in backward, and input updates in the graph ask the gate."""
    answers: dict[str, bool] = {}

    def allowed(unit: str, subject: str) -> bool:
        """Ask about each unit once, because the analysis and the trace must agree."""
        if unit not in answers:
            answers[unit] = gate.allows(unit, subject)
        return answers[unit]

    def analysing(original: Function) -> Function:
        @functools.wraps(original)
        def analyse(*args: Any, **kwargs: Any) -> Any:
            positional = list(args)
            given = kwargs["aot_config"] if "aot_config" in kwargs else positional[AOT_CONFIG]
            if given.keep_inference_input_mutations and not allowed(MUTATION, "updated inputs"):
                given = dataclasses.replace(given, keep_inference_input_mutations=False)
            if "aot_config" in kwargs:
                kwargs["aot_config"] = given
            else:
                positional[AOT_CONFIG] = given
            return original(*positional, **kwargs)

        return analyse

    @contextlib.contextmanager
    def autocast_asked() -> Iterator[None]:
        unset = _autocast() and config.backward_pass_autocast != "off"
        off = unset and not allowed(AUTOCAST, str(config.backward_pass_autocast))
        with config.patch(backward_pass_autocast="off") if off else contextlib.nullcontext():
            yield

    defaults = settings_of_torch.changed(CONFIG)
    held_back = {
        name: value
        for name, value in defaults.items()
        if not gate.allows(f"{SETTING}.{name}", settings_of_torch.described(CONFIG, name))
    }
    with (
        settings_of_torch.set_back(CONFIG, held_back, log),
        patched(ANALYSIS, analysing, log),
        traced_within(autocast_asked, log),
    ):
        yield


def _autocast() -> bool:
    """Return whether autocast is on for any available device."""
    accelerator = torch.accelerator.current_accelerator()
    devices = ("cpu", *([accelerator.type] if accelerator else []))
    return any(torch.is_autocast_enabled(device) for device in devices)
