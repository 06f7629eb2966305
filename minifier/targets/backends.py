"""Any backend of torch.compile: the embedded compiler, inductor, a registered name, a callable."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.backend import backend as embedded
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.source import for_eager
from tcdebug.minifier.targets.entries import ENTRIES
from tcdebug.minifier.targets.ladder import autograd_asked, rung
from tcdebug.minifier.targets.scalar_reads import captured_with_fullgraph, forbid_scalar_reads

EMBEDDED = "tcdebug"
INDUCTOR = "inductor"
EAGER = "eager"
FALLBACK_RANDOM = "fallback_random"
"""The option with which inductor and the embedded compiler draw random numbers as eager does."""

DECOMPOSING = "aot_eager_decomp_partition"
"""The first part of the names of torch's backends that take inductor's decompositions."""

GraphCompiler = Callable[..., Callable[..., Any]]
"""Called with a graph and its inputs. Returns a callable."""


@dataclass(frozen=True)
class Backend:
    """A backend, with the mode and options with which a script compiles."""

    backend: Any
    name: str
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    run_dir: str = ""
    in_place_of: Backend | None = None
    """The backend with which the script compiles, if this one is asked first, being faster."""
    artifacts: bool = False
    """Whether the texts of stages are kept in the run folder."""
    fullgraph: bool | None = None
    """Whether the script captures with `fullgraph=True`; None if that is not known."""
    own_draws: bool = False
    """Whether candidates of inductor keep its own random numbers, as the script does."""
    parallel_builds: bool = True
    """Whether candidates of inductor build Triton kernels in forks, several at a time."""

    @contextlib.contextmanager
    def compiled(
        self, module: Callable[..., Any], toggles: Toggles, notify: Callable[[str], None]
    ) -> Iterator[Callable[..., Any]]:
        """Compile the module with this backend, or with a rung of the ladder below it."""
        with contextlib.ExitStack() as stack:
            inner = self._graph_compiler(toggles, stack)

            def announced(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
                notify("compile")
                if self.fullgraph is False:
                    forbid_scalar_reads()
                compiled = inner(graph, inputs)

                def call(*args: Any) -> Any:
                    notify("forward")
                    return compiled(*args)

                return call

            # Dynamo captured the case as one graph; parts of it would be another case
            yield torch.compile(module, backend=announced, fullgraph=True)

    def _graph_compiler(self, toggles: Toggles, stack: contextlib.ExitStack) -> GraphCompiler:
        """Return what compiles a graph under toggles while the stack is open."""
        if autograd_asked(toggles):
            from tcdebug.minifier.targets import autograd  # noqa: PLC0415 - start-up time

            stack.enter_context(autograd.switched(toggles, self._log()))
        if lower := rung(toggles):
            found: GraphCompiler = torch._dynamo.lookup_backend(lower)
            if lower == EAGER:
                return lambda graph, inputs: found(for_eager(graph), inputs)
            if self.draws_as_eager:
                stack.enter_context(torch._inductor.config.patch({FALLBACK_RANDOM: True}))
            return found
        options = dict(self.options)
        if self.name == EMBEDDED:
            given = options.get("off", ())
            already = given if isinstance(given, Toggles) else Toggles.parse(given)
            options["off"] = toggles.without(off=already.off, sites=already.sites)
            options["run_dir"] = self.run_dir or None
            options["log"] = bool(self.run_dir)  # regardless of the script: decisions are events
            options["artifacts"] = self.artifacts
            counts: dict[str, int] = {}
            return partial(embedded, mode=self.mode, options=options, counts=counts)
        from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

        log = self._log()
        gate = stack.enter_context(inductor.switched(toggles, log))
        if self.parallel_builds:
            stack.enter_context(inductor.parallel_builds.parallel_builds(gate, log))
        if self.name in ENTRIES:
            stack.enter_context(torch._inductor.config.patch(self.added()))
            return self._entered()
        if self.name == INDUCTOR:
            return _inductor({**self.added(), **_mode_options(self.mode), **self.options})
        stack.enter_context(torch._inductor.config.patch(self.added()))
        return self._resolved(self.mode, inductor.allowed_options(gate, options))

    def _log(self) -> EventLog:
        """Return the log for decisions that the embedded compiler does not log itself."""
        return EventLog(Path(self.run_dir) if self.run_dir else None, artifacts=self.artifacts)

    def _resolved(self, mode: str | None, options: Mapping[str, Any]) -> GraphCompiler:
        """Return the backend as torch.compile would call it, with mode and options applied."""
        if not isinstance(self.backend, str):
            found: GraphCompiler = self.backend
        else:
            found = torch._dynamo.lookup_backend(self.backend)
        extra: dict[str, Any] = {}
        if mode not in (None, "default"):
            extra["mode"] = mode
        if options:
            extra["options"] = dict(options)
        return (lambda graph, inputs: found(graph, inputs, **extra)) if extra else found

    def _entered(self) -> GraphCompiler:
        """Return an entry of inductor, which asks about its settings itself."""
        if not isinstance(self.backend, str):
            entered: GraphCompiler = self.backend
            return entered
        return partial(ENTRIES[self.backend], options=dict(self.options))

    @property
    def named(self) -> bool:
        """Whether a name and options with a text identify the backend.

        Otherwise it is an object of the script, or its options contain one, such as a pass.
        """
        named = self.name == INDUCTOR or isinstance(self.backend, str)
        return named and all(map(has_text, self.options.values()))

    def as_captured(self) -> Backend:
        """Return this backend for the graph with which Dynamo now calls it."""
        return replace(self, fullgraph=captured_with_fullgraph())

    def keeping(self, folder: Path) -> Backend:
        """Return this backend, set to write the texts of its stages to a run folder."""
        return replace(self, run_dir=str(folder), artifacts=True)

    def in_one_process(self) -> Backend:
        """Return this backend, set to build all kernels in the process that compiles."""
        return replace(self, parallel_builds=False)

    def call(self) -> dict[str, Any]:
        """Return the arguments of torch.compile; `backend` is None for an object of the script."""
        whole = {"fullgraph": True} if self.fullgraph else {}
        if not self.named:
            return {"backend": None, **whole}
        call: dict[str, Any] = {"backend": self.name, **whole}
        if self.mode not in (None, "default"):
            call["mode"] = self.mode
        if self.options:
            call["options"] = dict(self.options)
            if isinstance(off := self.options.get("off"), Toggles):
                call["options"]["off"] = off.texts()
        return call

    def added(self) -> dict[str, Any]:
        """Return the settings of inductor that a candidate has in addition to the script's.

        Values can be compared only if random numbers are drawn as in eager.
        """
        of_script = not isinstance(self.backend, str)  # it may be built on inductor
        inductor = self.name in (INDUCTOR, AOTINDUCTOR_BACKEND, *ENTRIES)
        may_replace = inductor or of_script or self.name.startswith(DECOMPOSING)
        given = not may_replace or FALLBACK_RANDOM in self.options
        return {} if given or self.own_draws else {FALLBACK_RANDOM: True}

    @property
    def draws_as_eager(self) -> bool:
        """Whether compiled code draws the random numbers of eager.

        That is not known of a backend that the script defines, which is taken to do so.
        """
        default = (
            Options.from_env().fallback_random if self.name == EMBEDDED else not self.own_draws
        )
        return bool(self.options.get(FALLBACK_RANDOM, default))

    def with_own_draws(self) -> Backend | None:
        """Return this backend with its own random numbers; None if they are not replaced."""
        if not self.added():
            return None
        instead = self.in_place_of and replace(self.in_place_of, own_draws=True)
        return replace(self, own_draws=True, in_place_of=instead)

    def as_in_script(self) -> Backend:
        """Return this backend with the random numbers that it draws where the script compiles."""
        own = self.with_own_draws()
        return self if own is None or torch._inductor.config.fallback_random else own

    def warm_up(self, log: EventLog) -> None:
        """Import and set up in this process what every candidate of this backend needs.

        A first compile by inductor builds headers that later ones share. On a busy machine that
        takes longer than the time limit of a hang.
        """
        if self.name != EMBEDDED:
            from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

            given = (INDUCTOR, AOTINDUCTOR_BACKEND, *ENTRIES)
            if self.name in given or (not self.named and _names_inductor(self.backend)):
                inductor.warm_up(log)
            else:
                inductor.register()


def has_text(value: Any) -> bool:
    """Return whether the text of a setting has its value, so that a repro can state it."""
    try:
        return isinstance(value, Toggles) or bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _names_inductor(backend: Any) -> bool:
    """Return whether the file that defines a backend mentions inductor."""
    defined = backend if hasattr(backend, "__code__") else type(backend)
    try:
        path = inspect.getsourcefile(defined)
        return path is not None and INDUCTOR in Path(path).read_text(errors="replace")
    except (TypeError, OSError):
        return False


def _inductor(options: Mapping[str, Any]) -> GraphCompiler:
    from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415 - start-up time

    def compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compile_fx(graph, inputs, config_patches=dict(options))

    return compiler


def _mode_options(mode: str | None) -> dict[str, Any]:
    """Return inductor's options for a mode."""
    return {} if mode in (None, "default") else dict(torch._inductor.list_mode_options(mode))
