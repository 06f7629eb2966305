"""Measures how many lines of torch's compiler Python programs reach per CPU-second.

    python tests/benchmarks/fuzz_coverage.py [BACKEND [CPU_SECONDS [SEED ...]]]
    python tests/benchmarks/fuzz_coverage.py cost [BACKEND]

It needs Python 3.12, which has sys.monitoring. Each seed has a process of its own. The first number
of a line is in CPU-seconds. `cost` judges the same programs with and without recording.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from fuzz_python_throughput import drawn

from tcdebug.fuzz.hunt import independent_draws
from tcdebug.fuzz.job import APART
from tcdebug.fuzz.python.oracle import judge_python

RECORDED = tuple(
    str(Path(torch.__file__).parent / name) + os.sep
    for name in ("_dynamo", "_functorch", "_inductor")
)
MARKS = 4
"""How often a process prints what it has reached."""


class LineRecorder:
    """Records which lines of functions of torch's compiler run, each once."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # of Python 3.12

    def start(self) -> None:
        """Record what runs from now on. The event of a line is disabled when it has occurred."""
        tool, line = self._monitoring.COVERAGE_ID, self._monitoring.events.LINE
        self._monitoring.use_tool_id(tool, "fuzz_coverage")
        self._monitoring.register_callback(tool, line, self._ran)
        self._monitoring.set_events(tool, line)

    def stop(self) -> None:
        """Record no more."""
        self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)
        self._monitoring.free_tool_id(self._monitoring.COVERAGE_ID)

    def _ran(self, code: CodeType, line: int) -> object:
        """Note a line. Bodies of modules and classes run when something imports them."""
        if code.co_flags & CO_OPTIMIZED and code.co_filename.startswith(RECORDED):
            self.lines.add((code.co_filename, line))
        return self._monitoring.DISABLE


def hunt(backend: str, seconds: float, start: int) -> None:
    """Judge programs for some CPU-seconds, and print the lines reached at regular marks."""
    folder, recorder = Path(tempfile.mkdtemp()), LineRecorder()
    marks = [seconds * k / MARKS for k in range(1, MARKS + 1)]
    programs, features = 0, set[str]()
    recorder.start()
    began = time.process_time()
    while marks:
        for program in drawn(backend, start, independent_draws()):
            judge_python(program, backend, lambda phase: None, folder)
            programs += 1
            features |= {*program.ops}
            if marks and time.process_time() - began >= marks[0]:
                sys.stdout.write(
                    f"{marks.pop(0):6.0f} seed {start % APART:3} programs {programs} "
                    f"features {len(features)} lines {len(recorder.lines)}\n"
                )
                sys.stdout.flush()
        start += APART


def cost(backend: str) -> None:
    """Print the CPU-seconds of judging 50 programs with and without recording, alternating."""
    folder = Path(tempfile.mkdtemp())
    programs = [
        program for start in (1, 2) for program in drawn(backend, start, independent_draws())
    ]
    for repeat in range(3):
        for recorded in (False, True):
            recorder = LineRecorder()
            began = time.process_time()
            if recorded:
                recorder.start()
            for program in programs:
                judge_python(program, backend, lambda phase: None, folder)
            spent = time.process_time() - began
            if recorded:
                recorder.stop()
            name = "recorded" if recorded else "plain"
            sys.stdout.write(f"{repeat} {name} {spent:.2f} lines {len(recorder.lines)}\n")


def main() -> None:
    """Measure, each seed in a forked process."""
    if sys.version_info < (3, 12):
        sys.exit("it needs sys.monitoring, which Python has since 3.12")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    measures_cost = arguments[:1] == ["cost"]
    backend, *rest = (arguments[1:] if measures_cost else arguments) or ["aot_eager"]
    judge_python(
        drawn(backend, 0, independent_draws())[0],
        backend,
        lambda phase: None,
        Path(tempfile.mkdtemp()),
    )
    importlib.import_module("torch._inductor.compile_fx")  # some programs import it, which takes
    importlib.import_module("torch._inductor.lowering")  # long and runs thousands of lines
    if measures_cost:
        return cost(backend)
    seconds, *seeds = [float(text) for text in rest] or [120.0]
    for start in map(int, seeds or [1, 2, 3]):
        child = os.fork()
        if child == 0:
            hunt(backend, seconds, start)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
