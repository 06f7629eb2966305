"""How many drawn Python programs it takes to see each fault of tests/planted_in_dynamo.py.

    python tests/benchmarks/fuzz_planted_in_dynamo.py [SEED [SECONDS [PART OF A NAME ...]]]

All faults of a backend are hunted with the same programs. A program is judged without a fault
first, then with each fault whose unit it calls. It counts if it fails with the fault alone. Faults
of caches and packages are hunted with programs of the way that reads them. Prints the programs
until then, and the CPU-seconds that judging them once took. A backend is given up after SECONDS.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[2]))

from tcdebug.fuzz.hunt import independent_draws
from tcdebug.fuzz.job import ROUND
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import python_programs
from tcdebug.strategies.python.ways import DRAWN, OF_BACKEND
from tests.planted_in_dynamo import PLANTED, PlantedUnit

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Enough(BaseException):
    """All faults are seen, or the time is used up."""


@contextmanager
def replaced(unit: PlantedUnit, wrap: Wrap) -> Iterator[None]:
    """Put something else in place of a unit."""
    original = getattr(unit.place, unit.name)
    setattr(unit.place, unit.name, wrap(original))
    try:
        yield
    finally:
        setattr(unit.place, unit.name, original)


def failing(program: PythonProgram, backend: str, folder: Path) -> str:
    """Return the signature of a failure; empty if the program does not fail."""
    verdict = judge_python(program, backend, lambda phase: None, folder)
    assert verdict.compiles, f"this process compiles nothing after\n{program.source()}"
    return verdict.signature if verdict.status is Status.FAILED else ""


def called(
    program: PythonProgram, units: dict[str, PlantedUnit], backend: str, folder: Path
) -> tuple[str, ...]:
    """The faults whose units a program calls; none if it fails without a fault."""
    calls: dict[str, None] = {}

    def recording(name: str) -> Wrap:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def unit(*args: Any, **kwargs: Any) -> Any:
                calls[name] = None
                return original(*args, **kwargs)

            return unit

        return wrap

    def run(names: tuple[str, ...]) -> str:
        if not names:
            return failing(program, backend, folder)
        with replaced(units[names[0]], recording(names[0])):
            return run(names[1:])

    if run(tuple(units)):
        return ()
    of_way = (name for name, unit in units.items() if unit.program.way == program.way)
    return tuple(of_way) if backend in OF_BACKEND else tuple(calls)


def used() -> float:
    """The CPU-seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def hunted(units: dict[str, PlantedUnit], backend: str, start: int, most: float) -> None:
    """Draw programs until each fault was seen; print programs, CPU-seconds and signature."""
    of_faults = tuple(dict.fromkeys(unit.program.way for unit in units.values()))
    ways, folder = of_faults if backend in OF_BACKEND else DRAWN, Path(tempfile.mkdtemp())
    began, once, count = used(), 0.0, 0
    missing = dict(units)

    def attempt(program: PythonProgram) -> None:
        nonlocal once, count
        if not missing or used() - began > most:
            raise Enough
        count += 1
        before = used()
        names = called(program, missing, backend, folder)
        once += used() - before
        for name in names:
            with replaced(missing[name], missing[name].fault):
                signature = failing(program, backend, folder)
            if signature:
                del missing[name]
                print_row(name, count, once, signature)

    options = settings(
        max_examples=ROUND, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), backend=independent_draws(),
    )  # fmt: skip
    try:
        while True:
            options(seed(start)(given(python_programs(ways))(attempt)))()
            start += 1
    except Enough:
        for name in missing:
            print_row(name, count, once, "not seen")


def print_row(name: str, count: int, seconds: float, text: str) -> None:
    """Print what it took to see a fault."""
    sys.stdout.write(f"{name:36} {count:4} programs {seconds:6.1f} CPU-s  {text[:80]}\n")
    sys.stdout.flush()


def main() -> None:
    """Hunt the faults of each backend in a process of its own."""
    arguments = dict(enumerate(sys.argv[1:]))
    start, most = int(arguments.get(0, 0)), float(arguments.get(1, 60))
    parts = sys.argv[3:] or [""]
    warnings.simplefilter("ignore")
    failing(PLANTED["missing guard of a tensor"].program, "eager", Path(tempfile.mkdtemp()))
    chosen = {n: unit for n, unit in PLANTED.items() if any(part in n for part in parts)}
    for backend in dict.fromkeys(unit.backend for unit in chosen.values()):
        if os.fork() == 0:
            units = {name: unit for name, unit in chosen.items() if unit.backend == backend}
            hunted(units, backend, start, most)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
