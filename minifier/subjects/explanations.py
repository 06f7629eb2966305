"""Forms of a graph that pass if there is a known reason for its failure."""

from __future__ import annotations

from collections.abc import Iterator

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.job import ORDER
from tcdebug.minifier.subjects.equal_elements import compared_by_elements
from tcdebug.minifier.subjects.lazy_inputs import resolved
from tcdebug.minifier.subjects.subject import KnownReason

LAZY = (
    "it passes if these inputs are resolved first, with `resolve_conj` and `resolve_neg`: {}. "
    "Other steps that read their memory may fail too"
)


def explanations(case: Case, failure: Outcome) -> Iterator[KnownReason[Case]]:
    """Yield the forms of a case that pass if a known reason explains its failure."""
    plain, lazy = resolved(case)
    if lazy:
        yield KnownReason(plain, "resolved inputs", LAZY.format(", ".join(lazy)))
    by_elements = compared_by_elements(case) if failure.kind is Kind.WRONG else None
    if by_elements is not None:
        yield KnownReason(by_elements, "the elements at the positions", ORDER)
