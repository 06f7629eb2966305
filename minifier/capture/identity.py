"""Runs the program in eager: the user's torch.compile does nothing.

`torch.compiler.set_stance("force_eager")` does not work here. It also stops the compiles
with which torch itself runs `scan`, `map`, `cond` and flex_attention, and those then raise.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dynamo import OptimizedModule

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import OperatorCaptured
from tcdebug.compiler.events.search_events import CompilingAsked
from tcdebug.compiler.patching import Patch, misfit, patched
from tcdebug.minifier.processes.callers import (
    asked_by,
    called_by_user,
    operator_around,
    shown,
)
from tcdebug.minifier.targets.backends import EAGER
from tcdebug.minifier.targets.captures import Captures
from tcdebug.minifier.targets.counting import counted_beside, is_own
from tcdebug.minifier.targets.interception import OPTIMIZE

ENABLE = Patch(
    "torch._dynamo.compiled_autograd",
    "_enable",
    "backward passes are still compiled in eager, and without compiled autograd",
)
ASKED = tuple(
    Patch(module, name, "the program's own code for being compiled is not tried in eager")
    for module, name in (
        ("torch.compiler", "is_compiling"),
        ("torch.compiler", "is_dynamo_compiling"),
        ("torch._dynamo", "is_compiling"),
    )
)
"""The functions with which a program asks whether it is being compiled."""
DISPATCH = Patch(
    "torch._ops:HigherOrderOperator",
    "dispatch",
    "Dynamo captures what torch.cond and the like are given in eager too",
)
PATCHES = (ENABLE, *ASKED, DISPATCH)
FIRST_LONGER, LATER_LONGER = 1.0, 0.001
"""Seconds that a first and a later call take longer, about as with a backend that does nothing."""
MOST_LONGER = 20.0
"""The limit on these seconds together."""

Captured = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns a function in eager whose calls Dynamo captures."""


class Identity(contextlib.nullcontext[None]):
    """Replaces what `torch._dynamo.optimize` returns: a decorator that compiles nothing.

    If they are `wrapped`, its results have the same type and attributes as a compiled function or
    module. Otherwise they are the function or module itself. With `captured`, Dynamo captures the
    calls all the same.
    """

    def __init__(self, *, wrapped: bool = True, captured: Captured | None = None) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.captured = captured

    def __call__(self, function: Any) -> Any:
        """Return the function or module, uncompiled but wrapped as torch.compile wraps it."""
        if not self.wrapped:
            return function
        if isinstance(function, torch.nn.Module):
            inner = function._orig_mod if isinstance(function, OptimizedModule) else function
            module = OptimizedModule(inner, self)  # type: ignore[arg-type]  # only called
            module._torchdynamo_orig_callable = inner.forward
            module.get_compiler_config = _no_config
            return module
        if inspect.isclass(function):
            return function

        captured = self.captured(function) if self.captured is not None else function

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return captured(*args, **kwargs)

        call._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
        call.get_compiler_config = _no_config  # type: ignore[attr-defined]
        call.aot_compile = functools.partial(self._aot_compile, function)  # type: ignore[attr-defined]
        return call

    def _aot_compile(self, function: Callable[..., Any], example_inputs: Any) -> Any:
        """Return what `aot_compile` of a compiled function returns; see `aot_functions`."""
        from torch._dynamo import aot_compile  # noqa: PLC0415 - start-up time

        return aot_compile.aot_compile_fullgraph(function, example_inputs, None, self)  # type: ignore[arg-type]


def _no_config() -> None:
    """Return None, as `get_compiler_config` does if nothing is compiled."""


@contextlib.contextmanager
def compile_is_identity(
    log: EventLog,
    *,
    wrapped: bool = True,
    captures: bool = False,
    told: bool = False,
    lasting: bool = False,
) -> Iterator[None]:
    """Run the program in eager in this block; torch's own use of its compiler is left alone.

    What torch.compile returns is `wrapped` as if it were compiled, or is what it was given. If
    Dynamo `captures` the calls, the program's counters of compiles count them. If it is `told`, it
    hears in these calls that it is being compiled. If they are `lasting`, each takes longer. If
    this version of torch cannot be patched, nothing at all is compiled.
    """
    calls, telling = Captures(), _Telling()
    inside = telling.inside if told else _Lasting().inside if lasting else None
    operators: set[str] = set()

    def note(operator: str) -> None:
        if operator and operator not in operators:
            operators.add(operator)
            log.emit(OperatorCaptured(operator))

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            if not called_by_user(sys._getframe(1)):
                note(operator_around(sys._getframe(1)))
                return original(*args, **kwargs)
            if not captures:
                return Identity(wrapped=wrapped, captured=inside)
            backend, rest = (args[0], args[1:]) if args else (kwargs.pop("backend", EAGER), ())
            dynamo = original(_only_counting(backend), *rest, **kwargs)

            def captured(function: Callable[..., Any]) -> Callable[..., Any]:
                compiled = dynamo(function)
                return lambda *args, **kwargs: calls.call(compiled, function, args, kwargs)

            return Identity(wrapped=wrapped, captured=captured)

        return optimize

    never: AbstractContextManager[Any] = nullcontext()
    if misfit(OPTIMIZE):
        never = torch.compiler.set_stance("force_eager")
    with (
        never,
        patched(OPTIMIZE, make, log),
        backward_in_eager(log),
        calls.hooked() if captures else nullcontext(),
        telling.asked(log) if told else nullcontext(),
    ):
        yield


class _Telling:
    """Tells a program in the calls of some functions that it is being compiled."""

    def __init__(self) -> None:
        self.depth = ContextVar("depth", default=0)
        self.lines: set[str] = set()

    def inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls count as compiled."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before = self.depth.set(self.depth.get() + 1)
            try:
                return function(*args, **kwargs)
            finally:
                self.depth.reset(before)

        return call

    @contextlib.contextmanager
    def asked(self, log: EventLog) -> Iterator[None]:
        """Answer the program's questions in this block, but not those of torch."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def answer() -> bool:
                if not self.depth.get() or (asking := asked_by(sys._getframe(1))) is None:
                    return bool(original())
                if (line := shown(asking)) not in self.lines:
                    self.lines.add(line)
                    log.emit(CompilingAsked(line))
                return True

            return answer

        with contextlib.ExitStack() as stack:
            for patch in ASKED:
                stack.enter_context(patched(patch, make, log))
            yield


class _Lasting:
    """Makes calls of functions take longer, as the first is compiled and others check guards."""

    def __init__(self) -> None:
        self.left = MOST_LONGER

    def inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls take longer, the first most."""
        longer = [FIRST_LONGER]

        def call(*args: Any, **kwargs: Any) -> Any:
            seconds = min(longer.pop() if longer else LATER_LONGER, self.left)
            self.left -= seconds
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass  # the time of the CPU counts too
            return function(*args, **kwargs)

        return call


def backward_in_eager(log: EventLog) -> AbstractContextManager[None]:
    """Run backward passes in eager in this block, also where they are to be compiled."""

    @contextlib.contextmanager
    def uncompiled(*_args: Any, **_kwargs: Any) -> Generator[None, None, None]:
        yield

    return patched(ENABLE, lambda original: uncompiled, log)


@contextlib.contextmanager
def operators_in_python(log: EventLog) -> Iterator[None]:
    """Let Python call what torch.cond, while_loop, scan and map are given in eager in this block.

    Otherwise torch compiles these operators, so that Dynamo captures those functions. It still
    does, but only so that a program that torch refuses is refused: the results are Python's.
    """
    inside = ContextVar("inside", default=False)

    def plainly(function: Callable[..., Any], captured: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.random.fork_rng():
                captured(*args, **kwargs)
            before = inside.set(True)
            try:
                return function(*args, **kwargs)
            finally:
                inside.reset(before)

        return call

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            compiled = original(*args, **kwargs)
            if not operator_around(sys._getframe(1)):
                return compiled
            return lambda function: plainly(function, compiled(function))

        return optimize

    def dispatching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def dispatch(self: Any, /, key: Any, *args: Any, **kwargs: Any) -> Any:
            plain = DispatchKey.CompositeExplicitAutograd
            recorded = key.name.startswith("Autograd") and plain in self.py_kernels
            return original(self, plain if recorded and inside.get() else key, *args, **kwargs)

        return dispatch

    with patched(OPTIMIZE, make, log), patched(DISPATCH, dispatching, log):
        yield


def _only_counting(backend: Any) -> Any:
    """Return a backend with which a program counts its compiles as with its own backend."""
    return backend if is_own(backend) else counted_beside(backend, EAGER)
