"""Runs a Python program, in eager or compiled, and records what each call leaves behind."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tcdebug.fuzz.python.process_state import own_process_state
from tcdebug.minifier.cases.operators.python_text import run_text
from tcdebug.minifier.reuse.reachable import Reachable, reachable
from tcdebug.strategies.python.process_flags import MODES
from tcdebug.strategies.python.python_program import CALL, RESULT, CallStep, PythonProgram

MODULE = "generated_program"
"""The name of the module that a program runs as."""
WEAK = "weakref"
"""What a program contains that sees when an object is freed."""
CHANGE = "change"
"""The phase of the lines that run before a call."""
ARGUMENTS = ("x", "y")
"""The arguments that are tensors."""
UNSEEN = ("globals()", "random.", "func.linearize(", "next(", "    class ")
"""Text that reads the last result or the state of a generator or iterator, or makes a function or a
class, which is another one in each call."""
INFERENCE = "inference_mode()"
OWN = ("drawn", "again")
"""In messages of the exceptions and warnings of programs themselves."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class BrokenProgram(Exception):
    """A program is not valid Python; the message says why."""


@dataclass(frozen=True)
class TensorLayout:
    """The memory of a tensor: its strides, and the first tensor of the state that shares it.

    `recorded` tells whether autograd has recorded how the tensor was computed, `inference` whether
    it was created in inference mode.
    """

    strides: tuple[int, ...]
    owner: int
    recorded: bool = False
    inference: bool = False


@dataclass(frozen=True)
class CallState:
    """The state after a call: what it returned or raised, and everything that it could write.

    If the lines before a call raise, there is no call, and `phase` is CHANGE.
    """

    state: Reachable
    layouts: dict[int, TensorLayout]
    modes: tuple[object, ...]
    """Grad mode, autocast and default dtype."""
    error: Exception | None = None
    phase: str = "forward"
    before: int = 0
    """A hash of the state before the call."""
    repeats: bool = False
    """Whether nothing was changed since the call before."""
    compiles: int = 0
    """How many graphs were compiled until now."""
    warned: tuple[str, ...] = ()
    """The warnings of the program itself."""
    inferring: bool = False
    """Whether parts of the call may run in inference mode."""
    alive: tuple[str, ...] = ()
    """Tensors of all calls that live on without the variables of the module, in the last state."""

    @property
    def own_error(self) -> bool:
        """Whether the program itself raised the exception."""
        return (
            self.error is None
            or any(text in map(str, self.error.args) for text in OWN)
            or (type(self.error).__name__ in ("Refused", "AssertionError"))
        )


@dataclass
class Execution:
    """One run of a program in a module of its own."""

    program: PythonProgram
    path: Path
    compiling: Compile
    count: Callable[[], int] = lambda: 0
    before_call: Callable[[], None] = lambda: None
    notify: Callable[[str], None] = lambda phase: None
    only_result: bool = False
    """Whether the states contain only the result."""
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType(MODULE))
    caught: list[warnings.WarningMessage] = field(default_factory=list)
    """All warnings since the first call."""
    tensors: list[tuple[str, weakref.ref[torch.Tensor]]] = field(default_factory=list)
    """The arguments and results of all calls."""

    def states(self) -> list[CallState]:
        """Run all calls, up to the first exception of torch. Raises BrokenProgram."""
        with own_process_state(), warnings.catch_warnings(record=True) as self.caught:
            warnings.simplefilter("always")
            sys.modules[MODULE] = self.module
            self.module.__dict__[RESULT] = None
            try:
                run_text(self.program.source(), str(self.path), self.module.__dict__)
            except Exception as error:
                raise BrokenProgram(f"{type(error).__name__}: {error}") from error
            call = self.compiling(self.module.__dict__["program"])
            gc.freeze()  # what lives on is searched among the objects of this run alone
            try:
                with ThreadPoolExecutor(1) as thread:
                    states = list(self._states(call, thread))
                if states and all(state.error is None for state in states):
                    states[-1] = replace(states[-1], alive=self._left_alive())
            finally:
                gc.unfreeze()
            return states

    def _states(self, call: Callable[..., Any], thread: ThreadPoolExecutor) -> Iterator[CallState]:
        last: tuple[object, ...] | None = None
        for step in self.program.steps:
            try:
                exec("\n".join(step.lines), self.module.__dict__)
            except (SyntaxError, NameError) as error:
                raise BrokenProgram(f"{type(error).__name__}: {error}") from error
            except Exception as error:
                state = reachable(self._roots())
                yield CallState(_copied(state), _layouts(state), torch_modes(), error, CHANGE)
                return
            if WEAK in self.program.source():
                gc.collect()  # a compile may leave a reference to the object in a cycle
            self.before_call()
            if step.thread:
                made = thread.submit(self._call, step, call, last).result()
            else:
                made = self._call(step, call, last)
            last = (made.before, step.mode, step.thread)
            yield made
            if isinstance(made.error, NameError):
                raise BrokenProgram(str(made.error))
            if not made.own_error:
                return

    def _call(
        self, step: CallStep, call: Callable[..., Any], last: tuple[object, ...] | None
    ) -> CallState:
        """Return the state after a call in this thread. `last` is that before the previous call."""
        before = self._state_before()
        now = (before, step.mode, step.thread)
        repeats = now == last and not step.lines and self._is_visible()
        names: dict[str, Any] = {**self.module.__dict__, "program": call}
        error, phase = None, "forward"
        mode = eval(step.mode, names) if step.mode else contextlib.nullcontext()
        self.notify(phase)
        earlier = len(self.caught)
        self._remember()
        try:
            with mode:
                self.module.__dict__[RESULT] = eval(CALL, names)
            modes = torch_modes()
            exec("\n".join(step.between), self.module.__dict__)
            if step.backward and (root := _root(self.module.__dict__[RESULT])) is not None:
                phase = "backward"
                self.notify(phase)
                root.backward()  # type: ignore[no-untyped-call] # torch has no annotation
        except Exception as raised:
            error, modes = raised, torch_modes()
        self._remember()
        state = reachable(self._roots())
        return CallState(
            _copied(state), _layouts(state), modes, error, phase, before, repeats, self.count(),
            tuple(self._warnings(earlier)), INFERENCE in step.mode + self.program.source(),
        )  # fmt: skip

    def _remember(self) -> None:
        """Keep weak references to the arguments and the result."""
        names = self.module.__dict__
        result = names.get(RESULT)
        values = result if isinstance(result, list | tuple) else [result]
        for name, value in [
            *((k, names.get(k)) for k in ARGUMENTS),
            *((RESULT, v) for v in values),
        ]:
            if isinstance(value, torch.Tensor):
                self.tensors.append((name, weakref.ref(value)))

    def _left_alive(self) -> tuple[str, ...]:
        """Remove all variables; what lives on."""
        for name in list(self._roots()):
            del self.module.__dict__[name]
        if any(reference() is not None for _, reference in self.tensors):
            gc.collect()
        alive = {
            id(value): name
            for name, reference in self.tensors
            if (value := reference()) is not None
        }
        return tuple(sorted(alive.values()))

    def _warnings(self, earlier: int) -> Iterator[str]:
        """The warnings of the program itself after the first `earlier` ones."""
        for caught in self.caught[earlier:]:
            if any(text in str(caught.message) for text in OWN):
                yield f"{caught.category.__name__}: {caught.message}"

    def _state_before(self) -> int:
        """Return a hash of what a graph may depend on, as the modes, but not the last result."""
        roots = {name: value for name, value in self._roots().items() if name != RESULT}
        return hash((*reachable(roots).paths().items(), torch_modes()))

    def _is_visible(self) -> bool:
        """Return whether `reachable` sees all that a graph may depend on.

        It sees neither gradients nor the state of iterators and of thread-local objects, nor what
        the text in UNSEEN reads or makes.
        """
        source = self.program.source()
        if any(text in source for text in UNSEEN):
            return False
        return _no_gradients(self.module) and not any(
            isinstance(value, Iterator | threading.local) for value in self._roots().values()
        )

    def _roots(self) -> dict[str, Any]:
        """Return the variables of the module, or the result alone."""
        hidden = types.ModuleType
        return {
            name: value
            for name, value in self.module.__dict__.items()
            if not name.startswith("_") and not isinstance(value, hidden) and name != "program"
            if not self.only_result or name == RESULT
        }


def _no_gradients(module: types.ModuleType) -> bool:
    """Return whether the arguments have no gradients, on which a graph may depend."""
    values = (module.__dict__.get("x"), module.__dict__.get("y"))
    return all(not isinstance(v, torch.Tensor) or not v.requires_grad for v in values)


def _root(result: Any) -> torch.Tensor | None:
    """Return the sum of the results that need a gradient."""
    values = result if isinstance(result, list | tuple) else [result]
    tensors = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
    if not tensors:
        return None
    return torch.stack([t.sum().to(torch.float64) for t in tensors]).sum()


def _copied(state: Reachable) -> Reachable:
    """Return the state with copies of its tensors, which later calls do not change."""
    copies = {place: value.detach().clone() for place, value in state.tensors.items()}
    return Reachable(state.nodes, copies)


def _layouts(state: Reachable) -> dict[int, TensorLayout]:
    first: dict[int, int] = {}
    found: dict[int, TensorLayout] = {}
    for place, value in sorted(state.tensors.items()):
        address = _address(value)
        if address is None:
            continue
        owner = first.setdefault(address, place) if value.numel() else place
        found[place] = TensorLayout(
            value.stride(), owner, _is_recorded(value), value.is_inference()
        )
    return found


def _is_recorded(value: torch.Tensor) -> bool:
    """Return whether autograd has recorded a tensor, also if it forbids to ask.

    It does for a view taken under `no_grad` after a write to its base.
    """
    try:
        return value.grad_fn is not None
    except RuntimeError:
        return True


def _address(value: torch.Tensor) -> int | None:
    """Return the address of a tensor's memory; None for a sparse or fake tensor, which has none."""
    if value.layout != torch.strided:
        return None
    try:
        return value.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def torch_modes() -> tuple[object, ...]:
    """Return the modes of torch that a program may change."""
    return tuple(eval(mode, {"torch": torch}) for mode in MODES)
