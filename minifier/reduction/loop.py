"""The loop of a reducer: applies every reduction in turn until none helps.

The loop holds the smallest candidate so far. Every candidate goes through `interesting`, so no
progress is lost when the budget runs out or the user interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, Self

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import MinifyPlan, MinifyStep
from tcdebug.minifier.reduction import CandidateReduction, ReducibleType
from tcdebug.minifier.search.algorithms import TooManyNeeded, first_bad, minimal_subset
from tcdebug.minifier.search.reducing import Interesting


@dataclass(frozen=True)
class Reductions(Generic[ReducibleType]):
    """The reductions of one kind of candidate, and what the loop needs to know about the kind.

    `coarse` ones run again if the `skeleton` of the candidate has changed, but not after changes
    of details. The search ends because every step lowers the `measure`.
    """

    coarse: tuple[CandidateReduction[ReducibleType], ...]
    fine: tuple[CandidateReduction[ReducibleType], ...]
    measure: Callable[[ReducibleType], Any]
    skeleton: Callable[[ReducibleType], object]
    is_valid: Callable[[ReducibleType], bool]
    unit: str = "nodes"
    """The unit of `size`."""
    described: Callable[[CandidateReduction[ReducibleType], ReducibleType], Sequence[str]] = (
        lambda reduction, case: ()
    )
    """Describes each edit, so that one that failed is tried again only at the end. Empty if the
    edits of a reduction are tried in every round."""
    most_needed: Callable[[CandidateReduction[ReducibleType]], int | None] = lambda reduction: None
    """The number of edits found to be impossible after which no more of a reduction are tried."""


@dataclass(frozen=True)
class _MeasuredCandidate(Generic[ReducibleType]):
    """A candidate with its measure."""

    case: ReducibleType
    of: Callable[[ReducibleType], Any]

    @cached_property
    def measure(self) -> Any:
        """The size of the candidate, in all its components."""
        return self.of(self.case)


class ReductionLoop(Generic[ReducibleType]):
    """The search for a smaller candidate that is still interesting."""

    def __init__(
        self, case: ReducibleType, reductions: Reductions[ReducibleType], log: EventLog
    ) -> None:
        self._reductions = reductions
        self._best = _MeasuredCandidate(case, reductions.measure)
        self.accepted = [case]
        """The candidates that were the smallest at some time, the last one the best."""
        self._log = log
        self._answers = {case.key: True}
        self._left: list[CandidateReduction[ReducibleType]] = []
        self._tried: object = None
        self._before = ""
        self._failed: dict[tuple[str, str], str] = {}
        """The edits that failed, by reduction and description, and the candidate without them."""
        self._skipped = False
        self._left_out: dict[str, str] = {}
        """The first exception of each reduction that raised, by its name; of rehearsals too."""
        self._told: set[str] = set()
        """The reductions of which the log says so."""
        self._edits: dict[tuple[CandidateReduction[ReducibleType], str], list[str]] = {}
        self._described: dict[
            tuple[CandidateReduction[ReducibleType], str], list[tuple[str, str]]
        ] = {}
        self._made: dict[
            tuple[CandidateReduction[ReducibleType], str, tuple[str, ...]],
            _MeasuredCandidate[ReducibleType] | None,
        ] = {}

    @property
    def best(self) -> ReducibleType:
        """The smallest case so far."""
        return self._best.case

    def run(self, interesting: Interesting[ReducibleType]) -> ReducibleType:
        """Reduce until no reduction changes anything, and return the smallest case found."""
        while self.step(interesting):
            pass
        return self.best

    def step(self, interesting: Interesting[ReducibleType]) -> bool:
        """Apply the next reduction. Return False once no reduction changes anything."""
        reduction = self._next()
        if reduction is not None:
            self.reduce(reduction, interesting)
        return reduction is not None

    def rehearsal(self) -> Self:
        """Return a reducer in the same state that logs nothing.

        The two share their caches of edits and candidates, and what raised in making these, but
        not their answers.
        """
        other = copy(self)
        other._log = EventLog(None)
        other._answers = dict(self._answers)
        other._left = list(self._left)
        other._failed = dict(self._failed)
        other._told = set(self._told)
        other.accepted = list(self.accepted)
        return other

    def return_to(self, earlier: Self) -> None:
        """Undo what was accepted since this rehearsal was made."""
        self._best, self._tried, self._before = earlier._best, earlier._tried, earlier._before
        self._answers, self._left = dict(earlier._answers), list(earlier._left)
        self._failed, self._skipped = dict(earlier._failed), earlier._skipped
        del self.accepted[len(earlier.accepted) :]

    def forget(self) -> None:
        """Drop everything derived from cases other than the best."""
        here = self.best.key
        self._edits = {k: v for k, v in self._edits.items() if k[1] == here}
        self._described = {k: v for k, v in self._described.items() if k[1] == here}
        self._made = {k: v for k, v in self._made.items() if k[1] == here}

    def _next(self) -> CandidateReduction[ReducibleType] | None:
        """Return the reduction whose turn it is; None at the end."""
        if not self._left:
            if self.best.key == self._before:
                if not self._skipped:
                    return None
                self._failed.clear()
                self._skipped, self._tried = False, None
            skeleton = self._reductions.skeleton(self.best)
            details = skeleton == self._tried
            self._before = self.best.key if details else ""
            self._tried = skeleton
            self._left = list(self._reductions.fine if details else self._reductions.coarse)
        return self._left.pop(0)

    def reduce(
        self, reduction: CandidateReduction[ReducibleType], interesting: Interesting[ReducibleType]
    ) -> None:
        """Apply as many edits of one reduction as possible while the failure persists."""
        self._reduce(reduction, interesting)
        self._tell_what_is_left_out()

    def _reduce(
        self, reduction: CandidateReduction[ReducibleType], interesting: Interesting[ReducibleType]
    ) -> None:
        case, start = self.best, self._best

        def keep(edits: Sequence[str]) -> bool:
            return self._keep(reduction, start, edits, interesting)

        edits = self._untried(reduction, case)
        if edits:
            self._announce(reduction, len(edits))
        if not edits or keep(edits):
            return
        if reduction.ordered:
            first_bad(0, len(edits), lambda n: not keep(edits[:n]))
            return

        def survives(unapplied: Sequence[str]) -> bool:
            left_out = set(unapplied)
            return keep([e for e in edits if e not in left_out])

        most = self._reductions.most_needed(reduction)
        try:
            needed = set(minimal_subset(edits[::-1], survives, most))
        except TooManyNeeded:
            return
        described = self._descriptions(reduction, case)
        here = self.best.key
        self._failed |= {(reduction.name, text): here for edit, text in described if edit in needed}

    def _untried(
        self, reduction: CandidateReduction[ReducibleType], case: ReducibleType
    ) -> list[str]:
        """Return the edits that have not failed before.

        Those that failed for another candidate are tried again at the end.
        """
        edits = self._edits_of(reduction, case)
        failed = {
            edit: self._failed[reduction.name, description]
            for edit, description in self._descriptions(reduction, case)
            if (reduction.name, description) in self._failed
        }
        self._skipped |= any(of != case.key for of in failed.values())
        return [e for e in edits if e not in failed]

    def _descriptions(
        self, reduction: CandidateReduction[ReducibleType], case: ReducibleType
    ) -> list[tuple[str, str]]:
        """Return the edits of a reduction with their descriptions, if it has any."""
        key = reduction, case.key
        if key not in self._described:
            try:
                described = self._reductions.described(reduction, case)
            except Exception as error:
                self._leave_out(reduction, error)
                described = ()
            edits = self._edits_of(reduction, case)
            self._described[key] = list(zip(edits, described, strict=False))
        return self._described[key]

    def _announce(self, reduction: CandidateReduction[ReducibleType], edits: int) -> None:
        """Log how many questions this round has at most.

        Later rounds are not counted, because listing the edits of a large graph takes long, and the
        graph will be small by then.
        """
        if self._log.folder is None:
            return
        counts = [(r.ordered, len(self._edits_of(r, self.best))) for r in self._left]
        expected = sum(_questions(n, ordered=o) for o, n in (*counts, (reduction.ordered, edits)))
        size, unit = self.best.size, self._reductions.unit
        self._log.emit(MinifyPlan(reduction.name, size, unit, expected))

    def _keep(
        self,
        reduction: CandidateReduction[ReducibleType],
        start: _MeasuredCandidate[ReducibleType],
        edits: Sequence[str],
        interesting: Interesting[ReducibleType],
    ) -> bool:
        """Try a set of edits, and keep the result if it is interesting and smaller.

        A result that is larger than the start is not tried.
        """
        candidate = self._candidate(reduction, start.case, edits)
        if candidate is None or candidate.measure > start.measure:
            return False
        key = candidate.case.key
        if key not in self._answers:
            self._answers[key] = interesting(candidate.case, reduction.name)
        if not self._answers[key]:
            return False
        if candidate.measure < self._best.measure:
            step = (reduction.name, self.best.size, candidate.case.size, self._reductions.unit)
            self._log.emit(MinifyStep(*step))
            self._best = candidate
            self.accepted.append(candidate.case)
        return True

    def _edits_of(
        self, reduction: CandidateReduction[ReducibleType], case: ReducibleType
    ) -> list[str]:
        key = reduction, case.key
        if key not in self._edits:
            try:
                self._edits[key] = reduction.edits(case)
            except Exception as error:
                self._leave_out(reduction, error)
                self._edits[key] = []
        return self._edits[key]

    def _candidate(
        self,
        reduction: CandidateReduction[ReducibleType],
        case: ReducibleType,
        edits: Sequence[str],
    ) -> _MeasuredCandidate[ReducibleType] | None:
        key = reduction, case.key, tuple(edits)
        if key not in self._made:
            made = self._applied(reduction, case, edits) if edits else case
            self._made[key] = (
                None if made is None else _MeasuredCandidate(made, self._reductions.measure)
            )
        return self._made[key]

    def _applied(
        self,
        reduction: CandidateReduction[ReducibleType],
        case: ReducibleType,
        edits: Sequence[str],
    ) -> ReducibleType | None:
        """Return the case with edits applied; None if it is malformed or the edits fail."""
        try:
            made = reduction.apply(case, edits)
            return made if made is not None and self._reductions.is_valid(made) else None
        except Exception as error:
            self._leave_out(reduction, error)
            return None

    def _leave_out(self, reduction: CandidateReduction[ReducibleType], error: Exception) -> None:
        """Remember that an exception in a reduction left its edits untried."""
        self._left_out.setdefault(reduction.name, f"{type(error).__name__}: {error}"[:2000])

    def _tell_what_is_left_out(self) -> None:
        """Log the first exception of each reduction, once."""
        for name, reason in list(self._left_out.items()):
            if name not in self._told:
                self._told.add(name)
                self._log.emit(Fallback(f"minimising goes without its step {name}", reason))


@lru_cache(maxsize=1024)
def _questions(edits: int, *, ordered: bool) -> int:
    """Return how many questions the loop asks about edits none of which can be applied."""
    if not edits:
        return 0
    if ordered:
        return 1 + (edits - 1).bit_length()
    partly = 0

    def all_needed(unapplied: Sequence[int]) -> bool:
        nonlocal partly
        partly += bool(unapplied)
        return len(unapplied) == edits

    minimal_subset(range(edits), all_needed)
    return 1 + partly
