"""How many drawn Python programs it takes to see each fault of tests/planted_in_dynamo.py.

    python tests/benchmarks/fuzz_planted_in_dynamo.py [SEED [SECONDS [PART OF A NAME]]]

A program counts if it fails with the fault and passes without it. Prints programs and CPU-seconds.
Each fault is given up after SECONDS of the CPU, without those of child processes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[2]))

from tcdebug.fuzz.job import ROUND
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import python_programs
from tcdebug.strategies.python.ways import DRAWN, OF_BACKEND
from tests.planted_in_dynamo import PLANTED, PlantedUnit


class Seen(BaseException):
    """The fault was seen; the message has the signature."""


def failing(program: PythonProgram, backend: str, folder: Path) -> str:
    """Return the signature of a failure; empty if the program does not fail."""
    verdict = judge_python(program, backend, lambda phase: None, folder)
    return verdict.signature if verdict.status is Status.FAILED else ""


def hunted(unit: PlantedUnit, start: int, most: float, folder: Path) -> str:
    """Draw programs until one shows the fault; programs, CPU-seconds and signature."""
    ways = OF_BACKEND.get(unit.backend, DRAWN)
    began, count = time.process_time(), 0
    original = getattr(unit.place, unit.name)

    def attempt(program: PythonProgram) -> None:
        nonlocal count
        if time.process_time() - began > most:
            raise Seen("not seen")
        count += 1
        setattr(unit.place, unit.name, unit.fault(original))
        signature = failing(program, unit.backend, folder)
        setattr(unit.place, unit.name, original)
        if signature and not failing(program, unit.backend, folder):
            raise Seen(signature)

    options = settings(
        max_examples=ROUND, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    try:
        while True:
            options(seed(start)(given(python_programs(ways))(attempt)))()
            start += 1
    except Seen as seen:
        signature = str(seen)
    return f"{count:4} programs {time.process_time() - began:6.1f} CPU-s  {signature}"


def main() -> None:
    """Hunt each fault in a process of its own."""
    arguments = dict(enumerate(sys.argv[1:]))
    start, most, part = int(arguments.get(0, 0)), float(arguments.get(1, 60)), arguments.get(2, "")
    warnings.simplefilter("ignore")
    failing(PLANTED["missing guard of a tensor"].program, "eager", Path(tempfile.mkdtemp()))
    for name, unit in PLANTED.items():
        if part in name:
            sys.stdout.write(f"{name:32} ")
            sys.stdout.flush()
            if os.fork() == 0:
                found = hunted(unit, start, most, Path(tempfile.mkdtemp()))
                sys.stdout.write(f"{found}\n")
                sys.stdout.flush()
                os._exit(0)
            os.wait()


if __name__ == "__main__":
    main()
