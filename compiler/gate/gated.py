"""Makes passes of a program units, so that a search can leave them out one by one.

    @tcdebug.gated("fuse_norm")            # the unit user.fuse_norm
    def fuse_norm(graph: torch.fx.Graph) -> None: ...

    with tcdebug.gated("fuse_norm", graph=graph) as wanted:
        if wanted: ...

A gated pass reports to whatever supervises the compiles of this process, such as a candidate of a
search. Without supervision the pass runs as if it were not gated. This module does not import
torch.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tcdebug.compiler.errors.exceptions import Coded

FAMILY = "user"
"""The family of the units of gated passes."""
UNIT = "tcdebug_unit"
"""The attribute that holds the unit of a gated pass."""
NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")

Pass = TypeVar("Pass", bound=Callable[..., Any])


class BadGate(Coded, ValueError):
    """A pass cannot be gated as described. The message says what is accepted."""

    code = "TCD018"


@dataclass
class PassRun:
    """One run of a gated pass. The supervisor sets `allowed`; the pass sets `result`."""

    unit: str
    subject: str
    """The name of the function."""
    graph: Any
    """The argument that the pass changes: a Graph, a GraphModule, or an object that has one."""
    required: bool
    allowed: bool = True
    result: Any = None


class PassSupervisor(Protocol):
    """Decides about each run of a gated pass, and records it."""

    def around(self, run: PassRun) -> AbstractContextManager[None]:
        """Enter before a pass runs, with `run.allowed` set inside; leave after it."""
        ...


@dataclass(frozen=True)
class Supervision:
    """The supervisors of the gated passes of this process.

    One that is installed `everywhere` applies to all threads. An embedded compile supervises its
    own passes unless there is such a supervisor. One that stands by gets what is left.
    """

    everywhere: list[PassSupervisor] = field(default_factory=list)
    here: ContextVar[PassSupervisor | None] = field(
        default_factory=lambda: ContextVar("tcdebug_passes", default=None)
    )
    standing_by: list[PassSupervisor] = field(default_factory=list)

    def current(self) -> PassSupervisor | None:
        """Return the supervisor to which passes report now."""
        if self.everywhere:
            return self.everywhere[-1]
        return self.here.get() or (self.standing_by[-1] if self.standing_by else None)

    def stand_by(self, supervisor: PassSupervisor) -> contextlib.AbstractContextManager[None]:
        """Let gated passes that report to nobody else report to a supervisor in this block."""
        return _listed(self.standing_by, supervisor)

    def of_process(self, supervisor: PassSupervisor) -> contextlib.AbstractContextManager[None]:
        """Let all gated passes report to a supervisor while the block runs."""
        return _listed(self.everywhere, supervisor)

    @contextlib.contextmanager
    def of_compile(self, supervisor: PassSupervisor) -> Iterator[None]:
        """Return the same for passes of this thread that report to nobody else."""
        token = self.here.set(supervisor)
        try:
            yield
        finally:
            self.here.reset(token)


@contextlib.contextmanager
def _listed(supervisors: list[PassSupervisor], supervisor: PassSupervisor) -> Iterator[None]:
    supervisors.append(supervisor)
    try:
        yield
    finally:
        supervisors.remove(supervisor)


SUPERVISION = Supervision()
"""The supervision of this process."""


def gated(
    name: str,
    *,
    graph: Any = None,
    required: bool = False,
    otherwise: Callable[..., Any] | None = None,
) -> PassGate:
    """Make a pass the unit user.NAME: a decorator of the pass, or a context manager around it.

    The decorator takes a function, or an object that is called. Its graph is the first argument
    that is a Graph, a GraphModule or an object with a `graph_module`. If the pass is left out,
    `otherwise` is called with its arguments. Without it, the pass returns what its annotation
    says: None, False or an unchanged PassResult, and by default its graph.

    The context manager takes the graph, and yields whether the block should change it.

    A `required` pass is never left out, because later passes rely on it; it is timed and compared
    like others. Raises BadGate.
    """
    if not NAME.fullmatch(name):
        raise BadGate(f"{name!r} is not a name: use letters, digits, _, - and dots")
    if required and otherwise is not None:
        raise BadGate("a pass that has something to do otherwise is not required")
    return PassGate(f"{FAMILY}.{name}", graph, required, otherwise)


@dataclass(frozen=True)
class PassGate:
    """Gates passes as one unit."""

    unit: str
    graph: Any = None
    required: bool = False
    otherwise: Callable[..., Any] | None = None
    _open: list[contextlib.ExitStack] = field(default_factory=list, compare=False)

    def __call__(self, function: Pass) -> Pass:
        """Return the pass, gated. Raises BadGate for a class."""
        if isinstance(function, type):
            raise BadGate(f"gate the method that runs the pass, not the class {function.__name__}")
        if not callable(function):
            raise BadGate(f"a pass is called with a graph; {function!r} cannot be called")
        if not inspect.isroutine(function) and not isinstance(function, functools.partial):
            made: Any = GatedObject(self, function)
            return made  # type: ignore[no-any-return] # it behaves as the pass

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            supervisor = SUPERVISION.current()
            if supervisor is None:
                return function(*args, **kwargs)
            return self._supervised(supervisor, function, args, kwargs)

        setattr(run, UNIT, self.unit)
        return run  # type: ignore[return-value] # it has the signature of the pass

    def __enter__(self) -> bool:
        """Return whether the block should change the graph."""
        stack = contextlib.ExitStack()
        self._open.append(stack)
        supervisor = SUPERVISION.current()
        if supervisor is None:
            return True
        run = PassRun(self.unit, self.unit, self.graph, self.required)
        stack.enter_context(supervisor.around(run))
        return run.allowed

    def __exit__(self, *error: Any) -> None:
        """Report the end of the block."""
        self._open.pop().__exit__(*error)

    def _supervised(
        self,
        supervisor: PassSupervisor,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        graph = next((v for v in (*args, *kwargs.values()) if is_graph(v)), None)
        can_be_left_out = self.otherwise is not None or graph is not None
        run = PassRun(self.unit, _name(function), graph, self.required or not can_be_left_out)
        with supervisor.around(run):
            if run.allowed:
                run.result = function(*args, **kwargs)
            elif self.otherwise is not None:
                run.result = self.otherwise(*args, **kwargs)
            else:
                run.result = _unchanged(function, graph)
        return run.result


class GatedObject:
    """A gated pass that is an object. In everything but calls it is the object itself."""

    __slots__ = ("_gated_by", "_gated_call", "_gated_object", UNIT)

    def __init__(self, gate: PassGate, wrapped: Any) -> None:
        run = gate(functools.partial(wrapped))
        for name, value in zip(GatedObject.__slots__, (gate, run, wrapped, gate.unit), strict=True):
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pass."""
        return self._gated_call(*args, **kwargs)

    @property  # type: ignore[misc] # the type of the pass, for isinstance
    def __class__(self) -> Any:
        return type(self._gated_object)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return GatedObject, (self._gated_by, self._gated_object)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gated_object, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._gated_object, name, value)


def unit_of(function: Any) -> str:
    """Return the unit of a gated pass; empty for any other."""
    return str(getattr(function, UNIT, ""))


def is_graph(value: Any) -> bool:
    """Return whether a value is a Graph, a GraphModule or an object with a `graph_module`."""
    from torch import fx  # noqa: PLC0415 - this module does not import torch

    if isinstance(value, fx.Graph | fx.GraphModule):
        return True
    return isinstance(getattr(value, "graph_module", None), fx.GraphModule)


def _name(function: Any) -> str:
    """Return the name of a pass, also inside partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", "") or type(function).__name__)


def _unchanged(function: Callable[..., Any], graph: Any) -> Any:
    """Return what a pass returns if it changes nothing, according to its annotation."""
    while isinstance(function, functools.partial):
        function = function.func
    annotations = getattr(function, "__annotations__", None)
    if annotations is None:  # an object: its method says what it returns
        annotations = getattr(type(function).__call__, "__annotations__", {})
    returned = annotations.get("return", graph)
    name = returned if isinstance(returned, str) else getattr(returned, "__name__", returned)
    match name:
        case "None" | None:
            return None
        case "bool":
            return False
        case "PassResult":
            from torch.fx.passes.infra.pass_base import PassResult  # noqa: PLC0415 - imports torch

            return PassResult(graph, False)
    return graph
