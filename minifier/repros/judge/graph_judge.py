"""Judges the graph of a repro script: runs it in eager, in float64 and compiled, and compares.

Each run is in a child process, because it may crash or hang.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any

import torch

from tcdebug.minifier.judging.marked_inputs import mark_inputs
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64
from tcdebug.minifier.judging.unwritten import Memory, filling_before_backward
from tcdebug.minifier.repros.judge.calls import (
    FURTHER_SEEDS,
    checkpoints_drawing_again,
    compile_on_this_thread,
    further_calls,
    leave_script,
    run,
    widened,
)
from tcdebug.minifier.repros.judge.child_report import ChildReport
from tcdebug.minifier.repros.judge.comparison import Layout, Results, compare, memory_for
from tcdebug.minifier.repros.judge.exceptions import exception_result

LAYERS = {
    "layer.aotinductor": "inductor",
    "layer.backend": "aot_eager_decomp_partition",
    "layer.decompositions": "aot_eager",
    "layer.autograd": "eager",
}
"""Layer -> the backend of torch that replaces it and all layers above it, the last layer first."""
OPTIONS = ("--off=", "--only=", "--here", "--switched")
PASSES, FAILS, USAGE, UNDECIDED = 0, 1, 2, 125
"""Exit statuses."""


@dataclass(frozen=True)
class GraphJudge:
    """Runs and judges the graph of a repro script."""

    graph: Callable[[], torch.nn.Module]
    inputs: Callable[..., list[Any]]
    expected: Mapping[str, Any]
    """What identifies the failure. A list holds alternatives."""
    call: dict[str, Any]
    """The arguments of torch.compile."""
    prepare: Callable[[], None] | None = None
    """Sets the global state of torch in which the failure occurred."""
    set_up: Callable[[Callable[[], None]], None] | None = None
    """Sets up everything else that the failure needs, and calls its argument."""
    seconds: float = 300.0
    """The time limit of a run in seconds. A longer run is a hang."""
    runs: int = 1
    """The number of runs that must pass before the script says that it does not fail."""
    calls: int = 1
    """The maximum of calls of the compiled graph."""
    dynamic: Sequence[tuple[int, int]] = ()
    """The dynamic dimensions, as pairs of input and dimension."""
    fixed: Sequence[int] = ()
    """The inputs that are buffers of a module."""
    off: Sequence[str] = ()
    """Units that are always switched off."""
    units: Sequence[str] = ()
    """Units that need not be reached while others are off."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Settings of inductor that tcdebug adds to the script's."""
    on_device: bool = False
    """Whether the graph runs on a GPU."""
    widens: bool = True
    """Whether there is a float64 run. Some graphs, and memory of several dtypes, need their own."""
    longer_than: float = 0.0
    """The limit on the CPU-seconds of the compile; 0 for none."""
    layout: Layout | None = None
    speed: Callable[..., dict[str, Any]] | None = None
    own_draws: Callable[[Sequence[Results], Sequence[Results]], str] | None = None
    """Compares runs with several seeds, if the compiled graph draws its own random numbers."""
    validation: Callable[..., dict[str, Any]] | None = None
    """Judges instead, if the failure is that the compiled graph accepts what eager rejects."""
    watch: Callable[[Callable[[Mapping[str, Any]], None], float], None] | None = None

    def run_here(self, off: Sequence[str], quiet: bool = False) -> None:
        """Run the graph in this process, and print the result; if `quiet`, print nothing else."""
        to_parent = ChildReport(os.dup(1), os.dup(2))  # the set-up may redirect its own
        if quiet:  # what the set-up prints must not be taken for a result
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if self.set_up is not None:
            self.set_up(lambda: self._judge(off, to_parent))
        else:
            self._judge(off, to_parent)

    def _judge(self, off: Sequence[str], to_parent: ChildReport) -> None:
        leave_script()
        to_parent.phase("eager")
        if self.longer_than:
            self._warm_up()
        if self.prepare is not None:
            self.prepare()
        if self.validation is not None:
            return self._report(lambda: self._validated(off, to_parent), to_parent)
        began = time.monotonic()
        module = self.graph()
        eager = run(module, self.inputs(), to_parent.phase)
        eager_seconds = time.monotonic() - began
        memory, compared = self._memory(eager, to_parent)
        exact = None
        with contextlib.suppress(Exception):  # a graph that needs its own dtypes has only eager
            if self.widens:
                wide = in_float64(
                    self.graph().double(), lambda g: run(g, self._wide_inputs(), to_parent.phase)
                )
                exact = compared(wide)
        values = self.inputs()
        mark_inputs(values, self.dynamic, self.fixed)
        to_parent.phase("compile")
        if self.watch is not None:
            self.watch(to_parent.result, eager_seconds)
        torch._dynamo.reset()
        self._report(
            lambda: self._compiled(module, values, off, eager, exact, memory, compared, to_parent),
            to_parent,
        )

    def _memory(
        self, eager: Results, to_parent: ChildReport
    ) -> tuple[Memory, Callable[[Results], Results]]:
        if self.longer_than or self.speed is not None:
            return contextlib.nullcontext, lambda actual: actual
        return memory_for(eager, lambda: run(self.graph(), self.inputs(), to_parent.phase))

    def _report(self, judged: Callable[[], dict[str, Any]], to_parent: ChildReport) -> None:
        """Report a result, or the exception that was raised instead."""
        try:
            found = judged()
        except Exception as error:
            if type(error).__name__ == "BadToggle":
                return to_parent.result({"kind": "usage", "message": str(error)})
            to_parent.traceback(error)
            return to_parent.result({"kind": "exception", **exception_result(error)})
        to_parent.result(found)

    def _validated(self, off: Sequence[str], to_parent: ChildReport) -> dict[str, Any]:
        """Return whether the compiled graph accepts what eager rejects."""

        def inputs() -> list[Any]:
            values = self.inputs()
            mark_inputs(values, self.dynamic, self.fixed)
            return values

        module = self.graph()
        to_parent.phase("compile")
        torch._dynamo.reset()
        assert self.validation is not None
        with self._with_added(), self._switched(off) as call:
            return self.validation(module, torch.compile(module, **call), inputs)

    def _compiled(
        self,
        module: torch.nn.Module,
        values: Sequence[Any],
        off: Sequence[str],
        eager: Results,
        exact: Results | None,
        memory: Memory,
        compared: Callable[[Results], Results],
        to_parent: ChildReport,
    ) -> dict[str, Any]:
        """Compile and run the graph, and return the result of the comparison."""
        began = time.process_time()
        with self._with_added(), self._switched(off) as call:
            compiled = torch.compile(module, **call)
            phase = filling_before_backward(memory, to_parent.phase)
            with memory():
                actual = compared(run(compiled, values, phase))
            if self.longer_than:
                ended = time.process_time()
                run(compiled, self.inputs(), to_parent.phase)
                return self._compile_time(2 * ended - began - time.process_time())
            if self.speed is not None:
                return self.speed(module, compiled, self.inputs)
            what = compare(eager, actual, exact, self.layout, values=self.own_draws is None)
            if self.own_draws is not None:
                ours = [run(module, self.inputs(), to_parent.phase, s) for s in FURTHER_SEEDS]
                theirs = [run(compiled, self.inputs(), to_parent.phase, s) for s in FURTHER_SEEDS]
                what = what or self.own_draws([eager, *ours], [actual, *theirs])
            for _ in further_calls(self.calls - 1):  # results on a GPU may change from call to call
                if what:
                    break
                with memory():
                    again = compared(run(compiled, self.inputs(), phase))
                what = compare(eager, again, exact, self.layout, values=self.own_draws is None)
        return {"kind": "wrong", "what": what} if what else {"kind": "ok"}

    def _warm_up(self) -> None:
        """Compile something else first: imports of the first compile do not count."""
        with torch.enable_grad():
            values = torch.ones(2, requires_grad=True)
            torch.compile(lambda x: x.sin().sum(), **self.call)(values).backward()

    def _compile_time(self, seconds: float) -> dict[str, Any]:
        print(f"compiling took {seconds:.1f} CPU-seconds; the limit is {self.longer_than}")
        return {"kind": "slow" if seconds > self.longer_than else "ok", "phase": "compile"}

    def _wide_inputs(self) -> list[Any]:
        """Return the inputs in float64."""
        if "wide" in signature(self.inputs).parameters:  # inputs share memory
            return self.inputs(wide=lambda m: m.double() if m.is_floating_point() else m)
        return widened(self.inputs())

    def _with_added(self) -> contextlib.AbstractContextManager[object]:
        if not self.added:
            return contextlib.nullcontext()
        config: Any = importlib.import_module("torch._inductor.config")
        patch: contextlib.AbstractContextManager[object] = config.patch(dict(self.added))
        return patch

    @contextlib.contextmanager
    def _switched(self, off: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Switch units off during the block, and yield the arguments of torch.compile."""
        backend = self.call["backend"]
        above = "" if backend == "aotinductor" else "layer.aotinductor"
        stand_ins = [b for layer, b in LAYERS.items() if layer in off and layer != above]
        if stand_ins:
            with checkpoints_drawing_again(stand_ins[-1]):
                yield {"backend": stand_ins[-1]}
        elif not off:
            yield self.call
        elif backend == "tcdebug":
            options = self.call.get("options", {})
            outside = [n for n in off if n.removeprefix("only:").startswith("autograd.")]
            importlib.import_module("tcdebug.minifier.targets.unit_names").check_units(off)
            with contextlib.ExitStack() as stack:
                if outside:  # units of AOTAutograd are not options of the backend
                    tcdebug = importlib.import_module("tcdebug")
                    stack.enter_context(tcdebug.switched_off(*outside))
                yield {**self.call, "options": {**options, "off": [*options.get("off", ()), *off]}}
        else:  # other backends have no option to switch units off
            names = importlib.import_module("tcdebug.minifier.targets.unit_names")
            with importlib.import_module("tcdebug").switched_off(*off) as decisions:
                try:
                    yield self.call
                finally:  # only a compile knows the names of passes
                    names.check_asked(off, [d.unit for d in decisions], self.units)

    def start(self, off: Sequence[str]) -> tuple[int, int, float]:
        """Start `run_here` in a child process. Return what `wait_for` needs."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            compile_on_this_thread()
            try:
                self.run_here(off, quiet=True)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
            sys.stdout.flush()
            os._exit(0)
        os.close(writer)
        return child, reader, time.monotonic() + self.seconds

    def exit_status(self, found: Mapping[str, Any]) -> int:
        """Print what a result means, and return its exit status."""
        if found["kind"] == "usage":
            print("error:", found["message"], file=sys.stderr)
            return USAGE
        print("found   ", found)
        print("expected", self.expected)
        if found["kind"] == "ok":
            print("it does not fail")
            return PASSES
        if found.get("phase") in ("set-up", "eager"):
            print("undecided:", found["phase"], "fails")
            return UNDECIDED
        if self.expected == {"kind": "ok"}:
            print("it fails, although this script expects the graph to pass")
            return FAILS
        if self._is_expected(found):
            print("it fails as expected")
            return FAILS
        print("undecided: it fails in a different way")
        return UNDECIDED

    def _is_expected(self, found: Mapping[str, Any]) -> bool:
        return all(
            found.get(k) in v if isinstance(v, list) else found.get(k) == v
            for k, v in self.expected.items()
        )

    def first_failing_status(
        self, off: Sequence[str], started: tuple[int, int, float] | None = None
    ) -> int:
        """Return the status of the first run that does not pass, or 0. One may have started."""
        for k in range(self.runs):
            one = started if started and k == 0 else self.start(off)
            if status := self.exit_status(wait_for(*one)):
                return status
        return PASSES

    def every_status(self, toggles: Sequence[Sequence[str]]) -> int:
        """Run with each set of toggles, and print the statuses. Return the first."""
        if not self.on_device:  # Dynamo would initialise every GPU, and no child could compile
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # counts GPUs without initialising them
        torch._dynamo.reset()  # imports Dynamo once for all children
        backend = self.call["backend"]
        with contextlib.suppress(Exception):  # the children will report the error
            if backend == "inductor" and not self.on_device:
                torch.compile(lambda x: x + 1)(torch.ones(2))
            elif backend in ("inductor", "tcdebug"):  # once for all children
                inner = {
                    "inductor": "torch._inductor.compile_fx",
                    "tcdebug": "tcdebug.compiler.backend",
                }
                importlib.import_module(inner[backend])
        # these runs do not affect one another, and a hang takes all its time
        kind = self.expected.get("kind")
        parallel = kind == "hang" or (self.on_device and kind == "wrong")
        started = [self.start(off) if parallel else None for off in toggles]
        statuses = [self.first_failing_status(*r) for r in zip(toggles, started, strict=True)]
        print("statuses:", *statuses)
        return statuses[0]


def wait_for(child: int, reader: int, deadline: float) -> dict[str, Any]:
    """Wait for a child, and return its result."""
    text, late = b"", False
    deadline = max(deadline, time.monotonic() + 1)  # it may have ended while another one ran
    while not late:
        if select.select([reader], [], [], 0.2)[0]:
            part = os.read(reader, 65536)
            if not part:
                break
            text += part
            if b"\nfound " in text and text.endswith(b"\n"):
                break  # the rest of the script does not matter
        late = time.monotonic() > deadline
    os.close(reader)
    if late or b"\nfound " in text:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    lines = text.decode(errors="replace").splitlines()
    phases = [line.removeprefix("phase ") for line in lines if line.startswith("phase ")]
    found = [line.removeprefix("found ") for line in lines if line.startswith("found ")]
    if found:
        result: dict[str, Any] = ast.literal_eval(found[0])
        return result
    if "compile" not in phases:
        return {"kind": "unknown", "phase": "eager" if phases else "set-up"}
    if late:
        return {"kind": "hang", "phase": phases[-1]}
    if os.WIFSIGNALED(status):
        return {"kind": "crash", "phase": phases[-1], "signal": os.WTERMSIG(status)}
    return {"kind": "unknown", "phase": phases[-1]}


def judge(
    graph: Callable[[], torch.nn.Module],
    inputs: Callable[..., list[Any]],
    expected: Mapping[str, Any],
    call: dict[str, Any],
    **settings: Any,
) -> int | None:
    """Do what the arguments of the script say. Return its exit status, or None after `--here`.

    The settings are the other fields of `GraphJudge`.
    """
    if unknown := sorted(set(settings) - {f.name for f in fields(GraphJudge)}):
        print("undecided: a newer tcdebug wrote this script:", *unknown, file=sys.stderr)
        return UNDECIDED
    if "-h" in sys.argv or "--help" in sys.argv:
        doc = getattr(sys.modules.get(graph.__module__), "__doc__", "")
        print(doc, "Options: --off=UNIT and --only=UNIT, any number of times.", sep="")
        return 0
    for argument in sys.argv[1:]:
        if not argument.startswith(OPTIONS):
            print(f"error: no option {argument!r}; there is", *OPTIONS[:2], file=sys.stderr)
            return USAGE
    judged = GraphJudge(graph, inputs, expected, call, **settings)
    off = [a.removeprefix("--off=") for a in sys.argv[1:] if a.startswith("--off=")]
    only = ["only:" + a.removeprefix("--only=") for a in sys.argv[1:] if a.startswith("--only=")]
    if "--here" in sys.argv or os.environ.get("TCDEBUG_SESSION"):
        judged.run_here([*judged.off, *off, *only])
        return None
    if "--switched" not in sys.argv:
        return judged.first_failing_status([*judged.off, *off, *only])
    return judged.every_status([[*judged.off, *t] for t in ([], *filter(None, (off, only)))])
