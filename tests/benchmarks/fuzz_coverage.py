"""Measures how many lines of torch are reached per CPU-second with and without guidance.

    python tests/benchmarks/fuzz_coverage.py [BACKEND [CPU_SECONDS [SEED ...]]]
    python tests/benchmarks/fuzz_coverage.py cost [BACKEND]

It needs Python 3.12. For each seed, a process draws programs without guidance and another one with
it, in rounds of 25. Both judge them and record the lines. Failures are not shrunk. The first
number of a line is in CPU-seconds. `cost` judges the same programs with and without recording.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdebug.fuzz.hunt import independent_draws
from tcdebug.fuzz.job import APART, ROUND
from tcdebug.fuzz.python.guidance import Guidance
from tcdebug.fuzz.python.line_coverage import LineCoverage, cannot_record
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import EVEN, feature_names, python_programs
from tcdebug.strategies.python.ways import DRAWN, OF_BACKEND


def drawn(backend: str, start: int, weights: Mapping[str, float]) -> list[PythonProgram]:
    """The programs of a round."""
    made: list[PythonProgram] = []

    @settings(
        max_examples=ROUND, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), backend=independent_draws(),
    )  # fmt: skip
    @seed(start)
    @given(python_programs(OF_BACKEND.get(backend, DRAWN), weights))
    def collect(program: PythonProgram) -> None:
        made.append(program)

    collect()
    return made


def hunt(backend: str, seconds: float, start: int, guided: bool) -> None:
    """Judge programs for some CPU-seconds; print the lines reached after 1/4, 1/2, 3/4 and all."""
    folder, ways = Path(tempfile.mkdtemp()), OF_BACKEND.get(backend, DRAWN)
    guidance = Guidance((*feature_names(), *ways))
    recording = LineCoverage()
    marks = [seconds * k / 4 for k in (1, 2, 3, 4)]
    programs, features = 0, set[str]()
    recording.start()
    began = time.process_time()
    while marks:
        weights = guidance.weights() if guided else EVEN
        for program in drawn(backend, start, weights):
            verdict = judge_python(program, backend, lambda phase: None, folder)
            verdict = msgspec.structs.replace(verdict, lines=recording.new())
            guidance.learn({*program.ops, program.way}, guidance.counted(verdict))
            programs += 1
            features |= {*program.ops}
            if time.process_time() - began >= marks[0]:
                name = "guided" if guided else "unguided"
                sys.stdout.write(
                    f"{marks.pop(0):6.0f} {name:9} seed {start % APART:3} programs {programs} "
                    f"features {len(features)} lines {guidance.coverage.count}\n"
                )
                sys.stdout.flush()
                if not marks:
                    return
        start += APART


def cost(backend: str) -> None:
    """Print the CPU-seconds of judging 50 programs with and without recording, alternating."""
    folder = Path(tempfile.mkdtemp())
    programs = [*drawn(backend, 1, EVEN), *drawn(backend, 2, EVEN)]
    for repeat in range(3):
        for recorded in (False, True):
            coverage = LineCoverage()
            began = time.process_time()
            if recorded:
                coverage.start()
            for program in programs:
                judge_python(program, backend, lambda phase: None, folder)
            spent = time.process_time() - began
            if recorded:
                coverage.stop()
            name = "recorded" if recorded else "plain"
            sys.stdout.write(f"{repeat} {name} {spent:.2f} lines {coverage.count}\n")


def forked(*work: object) -> None:
    """Run a hunt in a process of its own."""
    child = os.fork()
    if child == 0:
        hunt(*work)  # type: ignore[arg-type]
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Alternate between both, for each seed."""
    if reason := cannot_record():
        sys.exit(reason)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    measures_cost = arguments[:1] == ["cost"]
    backend, *rest = (arguments[1:] if measures_cost else arguments) or ["aot_eager"]
    judge_python(drawn(backend, 0, EVEN)[0], backend, lambda phase: None, Path(tempfile.mkdtemp()))
    importlib.import_module("torch._inductor.compile_fx")  # some programs import it, which takes
    importlib.import_module("torch._inductor.lowering")  # long and runs thousands of lines
    if measures_cost:
        return cost(backend)
    seconds, *seeds = [float(text) for text in rest] or [120.0]
    for start in map(int, seeds or [1, 2, 3]):
        for guided in (False, True):
            forked(backend, seconds, start, guided)


if __name__ == "__main__":
    main()
