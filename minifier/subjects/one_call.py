"""Finds the one call of a graph that may fail alone, before the graph is truncated."""

from __future__ import annotations

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.search.reducing import Interesting
from tcdebug.minifier.subjects.subject import Subject


def one_call(
    subject: Subject[CandidateType],
    oracle: Oracle[CandidateType],
    failing: tuple[CandidateType, Toggles, Outcome],
    fails: Interesting[CandidateType],
) -> tuple[str, CandidateType] | None:
    """Return a call that fails alone: the exception is about it, or its value is wrong first.

    The text says which. Return None if there is none. Raises BudgetUsed.
    """
    whole, _, failure = failing
    found, part = "named call", subject.named_call(whole, failure)
    if part is None:
        found, part = "first wrong value", _first_wrong(subject, oracle, failing)
    return (found, part) if part is not None and fails(part, found) else None


def _first_wrong(
    subject: Subject[CandidateType],
    oracle: Oracle[CandidateType],
    failing: tuple[CandidateType, Toggles, Outcome],
) -> CandidateType | None:
    """Return the call that computes the first wrong value, if the values can be compared."""
    whole, toggles, failure = failing
    returned = subject.returned_values(whole, failure)
    if returned is None:
        return None
    wrong = oracle.ask(returned.case, toggles, "all values as results").output
    return None if wrong is None else returned.part(wrong)
