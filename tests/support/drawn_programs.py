"""Python programs of a seed, as a campaign draws them."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdebug.fuzz.hunt import independent_draws
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import python_programs


def drawn(count: int, start: int) -> list[PythonProgram]:
    """The programs of a seed."""
    found: list[PythonProgram] = []

    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), backend=independent_draws(),
    )  # fmt: skip
    @seed(start)
    @given(python_programs())
    def collect(made: PythonProgram) -> None:
        found.append(made)

    collect()
    return found
