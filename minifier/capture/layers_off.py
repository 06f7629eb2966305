"""Runs a program without some of torch's layers: implements `layer.*` toggles in its process."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo import convert_frame

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.patching import patched
from tcdebug.minifier.capture.aot_functions import aot_functions_replaced
from tcdebug.minifier.capture.direct_captures import aot_stopped_at, tracers_noticed
from tcdebug.minifier.capture.entries import (
    EntryStandIn,
    artifacts_savable,
    as_it_is,
    entries_replaced,
    entry_compiled_by,
)
from tcdebug.minifier.capture.exports import (
    StandIn,
    compiled_by,
    export_is_identity,
    in_eager,
    packages_replaced,
)
from tcdebug.minifier.capture.float64_graphs import in_float64, in_own_dtypes
from tcdebug.minifier.capture.identity import (
    backward_in_eager,
    compile_is_identity,
    operators_in_python,
)
from tcdebug.minifier.capture.rounding_noise import with_noise, without_noise
from tcdebug.minifier.cases.layer_names import (
    CACHES,
    COMPILED_AUTOGRAD,
    CUDAGRAPHS,
    DYNAMO,
    DYNAMO_CODE,
    EXPORT,
    GUARDS,
    OPERATORS,
    OWN_BRANCHES,
    OWN_TIMES,
    PRECISION,
    ROUNDING,
    ROUNDING_CONTROLS,
    STAND_INS,
    WRAPPER,
)
from tcdebug.minifier.cases.settings import set_back
from tcdebug.minifier.processes.callers import called_by_user, mentions_noted
from tcdebug.minifier.targets.backends import EAGER
from tcdebug.minifier.targets.counting import counted_beside
from tcdebug.minifier.targets.interception import (
    OPTIMIZE,
    checkpoints_draw_again,
    compile_patched,
    settings_ignored,
)
from tcdebug.minifier.targets.ladder import rung
from tcdebug.minifier.targets.program_passes import program_passes

Enter = Callable[[], Callable[[], None]]
"""Called before a call of a compiled function. Its result is called after that call."""


@contextlib.contextmanager
def layers_off(toggles: Toggles, log: EventLog) -> Iterator[None]:
    """Run the program in this block without the layers that are off.

    Compiles that torch makes for its own purposes keep their layers, but not their caches.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(program_passes(toggles, EventLog(log.folder, artifacts=False)))
        stand_ins = [backend for layer, backend in STAND_INS.items() if layer in toggles.off]
        if _in_eager(toggles) or EXPORT in toggles.off:
            stack.enter_context(export_is_identity(log))
        if (packaged := _in_place_of_packages(toggles)) is not None:
            stack.enter_context(packages_replaced(packaged, log))
        if (entered := _in_place_of_entries(toggles)) is not None:
            stack.enter_context(entries_replaced(entered, log))
        if _in_eager(toggles) or _rounded_otherwise(toggles) or stand_ins:
            stack.enter_context(settings_ignored(log))
        if _in_eager(toggles):
            wrapped, captures = WRAPPER not in toggles.off, DYNAMO_CODE in toggles.off
            told, lasting = OWN_BRANCHES in toggles.off, OWN_TIMES in toggles.off
            stack.enter_context(mentions_noted(log))
            stack.enter_context(
                compile_is_identity(
                    log, wrapped=wrapped, captures=captures, told=told, lasting=lasting
                )
            )
            stack.enter_context(aot_stopped_at(EAGER, log))
            stack.enter_context(tracers_noticed(log))
        elif (rounded := _rounded_otherwise(toggles)) is not None:
            stack.enter_context(compile_patched(lambda backend: rounded, log))
            stack.enter_context(aot_stopped_at(EAGER, log))
        elif stand_ins:
            stand_in = partial(counted_beside, stand_in=stand_ins[0])
            stack.enter_context(compile_patched(stand_in, log))
            stack.enter_context(aot_stopped_at(stand_ins[0], log))
        if _rounded_otherwise(toggles) or EAGER in stand_ins:
            stack.enter_context(checkpoints_draw_again(log))
        if OPERATORS in toggles.off:
            stack.enter_context(operators_in_python(log))
        caches = _Caches([name for name in CACHES if toggles.rules_out(name)], log)
        if caches.names:
            stack.enter_context(caches.off())
            stack.enter_context(artifacts_savable(log))
            stack.enter_context(aot_functions_replaced(log, all_backends=True))
            stack.enter_context(each_call(caches.set, log))
        if CUDAGRAPHS in toggles.off:
            from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

            stack.enter_context(inductor.switched(Toggles.parse([CUDAGRAPHS]), log))
        if COMPILED_AUTOGRAD in toggles.off:
            stack.enter_context(backward_in_eager(log))
        if any(name in toggles.off for name in GUARDS.values()):
            stack.enter_context(each_call(_Recompiling().enter, log))
        yield


ROUNDED: Mapping[str, Callable[..., Any]] = {
    PRECISION: in_float64,
    ROUNDING: with_noise,
    ROUNDING_CONTROLS[PRECISION]: in_own_dtypes,
    ROUNDING_CONTROLS[ROUNDING]: without_noise,
}
"""Layer of rounding or its control -> the backend that runs graphs in its place."""


def _in_eager(toggles: Toggles) -> bool:
    """Return whether nothing that the program gives to torch.compile is compiled."""
    return bool({DYNAMO, DYNAMO_CODE, WRAPPER, OWN_BRANCHES, OWN_TIMES} & toggles.off)


def _rounded_otherwise(toggles: Toggles) -> Callable[..., Any] | None:
    """Return the backend that runs graphs in eager but rounds otherwise; None if none is asked."""
    return next((ROUNDED[layer] for layer in ROUNDED if layer in toggles.off), None)


def _in_place_of_packages(toggles: Toggles) -> StandIn | None:
    """Return what runs in place of what AOTInductor packages; None if it packages as usual."""
    if _in_eager(toggles) or EXPORT in toggles.off:
        return in_eager
    backend = _rounded_otherwise(toggles) or rung(toggles)
    return compiled_by(backend) if backend else None


def _in_place_of_entries(toggles: Toggles) -> EntryStandIn | None:
    """Return what runs in place of graphs given directly to inductor; None if it compiles them."""
    if _in_eager(toggles):
        return as_it_is
    if (rounded := _rounded_otherwise(toggles)) is not None:
        return entry_compiled_by(rounded)
    stand_ins = [backend for layer, backend in STAND_INS.items() if layer in toggles.off]
    return entry_compiled_by(stand_ins[0]) if stand_ins else None


def each_call(enter: Enter, log: EventLog) -> AbstractContextManager[None]:
    """Call `enter` before each call of a function that the program compiles in this block."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            context = original(*args, **kwargs)
            hooks = getattr(context, "enter_exit_hooks", None)
            if hooks is not None and called_by_user(sys._getframe(1)):
                hooks.append(enter)
            return context

        return optimize

    return patched(OPTIMIZE, make, log)


@dataclass
class _Caches:
    """Caches that stay off even if the script or a variable of the environment has them on."""

    names: list[str]
    log: EventLog

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Switch the caches off for the duration of the block."""
        with contextlib.ExitStack() as stack:
            for module, setting in self._settings():
                stack.enter_context(set_back(module.__name__, {setting: False}, self.log))
            yield

    def set(self) -> Callable[[], None]:
        """Switch them off again before a call."""
        for module, setting in self._settings():
            setattr(module, setting, False)
        return lambda: None

    def _settings(self) -> Iterator[tuple[Any, str]]:
        """Yield the settings that exist in this version of torch, with their config modules."""
        for name in self.names:
            for path, setting in CACHES[name]:
                module: Any = import_module(path)
                if hasattr(module, setting):
                    yield module, setting


@dataclass
class _Recompiling:
    """Drops what Dynamo has compiled before every outermost call.

    Dynamo's knowledge of dynamic sizes stays, so that the same sizes are symbolic. Nothing is
    dropped while another thread is in compiled code.
    """

    active: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> Callable[[], None]:
        """Prepare a call. Return the function to call after it."""
        with self.lock:
            if self.active == 0:
                self._drop()
            self.active += 1
        return self._leave

    def _leave(self) -> None:
        with self.lock:
            self.active -= 1

    def _drop(self) -> None:
        with convert_frame.compile_lock:
            seen = [*convert_frame.input_codes.seen, *convert_frame.output_codes.seen]
            for reference in seen:
                if (code := reference()) is not None:
                    reset_code(code)
