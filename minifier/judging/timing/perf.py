"""Judges whether a compiled program is slower than eager, or is compiled more often than needed.

Both programs run alternately in the same process, and the best time of several runs counts, because
other load can only make a run slower. In one thread, the time that it waited for a CPU is
subtracted. With several threads, runs that waited for a CPU count only if all did. Recompiles are
checked first, with inputs of the same layout and with inputs whose symbolic dimensions have other
sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tcdebug.minifier.cases.case import Case, clone_values, flatten
from tcdebug.minifier.cases.criteria import OVERHEAD
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.kernels import finish_kernels
from tcdebug.minifier.judging.replay import run
from tcdebug.minifier.judging.timing.cpu_waits import timed_passes

LEAST_ROUNDS, MOST_ROUNDS = 5, 200
CLEAR_SECONDS, CLEAR_TIMES = 0.2, 2.0
"""Rounds end after this time if the program is this many times faster or slower than the limit."""
ENOUGH_SECONDS = 1.0
"""No more rounds run after this time and LEAST_ROUNDS, of which none waited for a CPU."""
MOST_SECONDS = 5.0
"""No more rounds run after this time and LEAST_ROUNDS, on a machine that is always busy."""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Seconds:
    """The times of forward and of backward; 0 if there is no backward."""

    forward: float
    backward: float
    quiet: bool = field(default=True, compare=False)
    """Whether no thread waited long for a CPU."""


def judge_speed(
    case: Case,
    eager: Call,
    compiled: Call,
    compiles: Callable[[], int],
    slower_than: float,
    overhead: float = OVERHEAD,
) -> Outcome:
    """Return the outcome of a case that has run once: ok, slow or recompile.

    `compiles` returns how often a graph has been compiled so far.
    """
    before = compiles()
    run(compiled, case, mark=True)
    if compiles() > before:
        return _recompiled("for inputs of the same layout")
    larger = resized(case)
    if larger is not None and _runs(eager, larger):
        run(compiled, larger, mark=True)
        if compiles() > before:
            return _recompiled("for another size of a dynamic dimension")
    calls, limits = (eager, compiled), (slower_than, overhead)
    found = slow(best_seconds(calls, case, *limits), *limits)
    if found.failed:  # measure again, because the machine may be busy
        found = slow(best_seconds(calls, case, *limits), *limits)
    return found


def _recompiled(why: str) -> Outcome:
    return Outcome(Kind.RECOMPILE, "forward", "forward | recompile", f"compiled again {why}")


def resized(case: Case) -> Case | None:
    """Return the case with its dynamic dimensions twice as long; None if there are none.

    Values are repeated, so that indices stay in range and sizes that must be equal stay equal.
    """
    if not any(i.dynamic for i in case.inputs):
        return None
    made = {}
    for given in case.inputs:
        value = given.value
        for dim in given.dynamic:
            value = torch.cat([value.detach(), value.detach()], dim)
        if given.dynamic:
            value.requires_grad_(given.value.requires_grad)
        made[given.name] = replace(given, value=value)
    return case.with_inputs(made)


def _runs(eager: Call, case: Case) -> bool:
    try:
        run(eager, case)
    except Exception:  # the sizes do not fit together, which says nothing
        return False
    return True


def slow(times: Sequence[Seconds], slower_than: float, overhead: float = OVERHEAD) -> Outcome:
    """Return the outcome for the times of eager and of the compiled program."""
    eager, compiled = times
    for phase in ("forward", "backward"):
        wanted, taken = getattr(eager, phase), getattr(compiled, phase)
        if taken > slower_than * wanted + overhead:
            message = f"{taken * 1e3:.3g} ms, {taken / wanted:.1f} times eager's {wanted * 1e3:.3g}"
            return Outcome(Kind.SLOW, phase, f"{phase} | slow", message, times=taken / wanted)
    return Outcome(Kind.OK)


def best_seconds(
    calls: Sequence[Call], case: Case, slower_than: float, overhead: float
) -> list[Seconds]:
    """Return the best times of eager and the compiled program, run alternately on fresh inputs."""
    rounds: list[list[Seconds]] = []
    started = time.perf_counter()
    while len(rounds) < MOST_ROUNDS:
        taken = time.perf_counter() - started
        least = CLEAR_SECONDS if is_clear(rounds, slower_than, overhead) else ENOUGH_SECONDS
        counted = [_enough(runs, taken, least) for runs in zip(*rounds, strict=True)]
        if counted and all(counted):
            break
        rounds.append([_timed(call, case) for call in calls])
    return [best_of(runs) for runs in zip(*rounds, strict=True)]


def is_clear(
    rounds: Sequence[Sequence[Seconds]], slower_than: float, overhead: float = OVERHEAD
) -> bool:
    """Return whether the compiled program is much faster or slower than allowed, so far."""
    if not rounds:
        return False
    best = [best_of(runs) for runs in zip(*rounds, strict=True)]
    much = slow(best, slower_than * CLEAR_TIMES, overhead).failed
    return much or not slow(best, slower_than / CLEAR_TIMES, overhead).failed


def _enough(runs: Sequence[Seconds], taken: float, least: float) -> bool:
    """Return whether the runs of a program suffice after this time."""
    counted = len(runs) if taken > MOST_SECONDS else sum(one.quiet for one in runs)
    return counted >= LEAST_ROUNDS and taken > least


def best_of(runs: Sequence[Seconds]) -> Seconds:
    """Return the smallest time of each phase, of the runs that did not wait for a CPU if any."""
    counted = [one for one in runs if one.quiet] or runs
    return Seconds(min(o.forward for o in counted), min(o.backward for o in counted))


def _timed(call: Call, case: Case) -> Seconds:
    values = clone_values(case.values())
    return Seconds(*timed_passes(lambda: flatten(call(*values)), values, finish_kernels))
