"""Measures how many Python programs are judged per CPU-second.

    python tests/benchmarks/fuzz_python_throughput.py [BACKEND [SEED ...]]

Each seed gives 25 programs. They are drawn and judged in this process; failures are not shrunk.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdebug.fuzz.job import ROUND
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import python_programs
from tcdebug.strategies.python.ways import DRAWN, OF_BACKEND


def drawn(backend: str, start: int, draws: str = "hypothesis") -> list[PythonProgram]:
    """The programs of a seed. `draws` names the backend of Hypothesis that draws them."""
    made: list[PythonProgram] = []

    @settings(
        max_examples=ROUND, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), backend=draws,
    )  # fmt: skip
    @seed(start)
    @given(python_programs(OF_BACKEND.get(backend, DRAWN)))
    def collect(program: PythonProgram) -> None:
        made.append(program)

    collect()
    return made


def main() -> None:
    """Print programs per CPU-second and the outcomes."""
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    seeds = [int(argument) for argument in sys.argv[2:]] or [1, 2, 3]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    judge_python(drawn(backend, 0)[0], backend, lambda phase: None, folder)
    outcomes: Counter[str] = Counter()
    began = time.process_time()
    for start in seeds:
        for program in drawn(backend, start):
            verdict = judge_python(program, backend, lambda phase: None, folder)
            outcomes[verdict.status.value] += 1
    rate = outcomes.total() / (time.process_time() - began)
    sys.stdout.write(f"{backend}: {rate:.2f} programs a CPU-second, {dict(outcomes)}\n")


if __name__ == "__main__":
    main()
