"""What a search may ask next: it is run again on the answers so far, and on those that are likely.

A search is a function of what it asks, so its next question follows from the answers before it.
Nothing is run again before somebody wants to know what comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
Asked = TypeVar("Asked", contravariant=True)
Told = TypeVar("Told", covariant=True)


class Ahead(Protocol[Asked, Told]):
    """Who can begin with a question before it is asked."""

    @property
    def likely(self) -> Sequence[Told]:
        """The answers to count on, the likeliest first."""
        ...

    def known(self, question: Asked) -> Told | None:
        """The answer to a question, if it is known by now."""
        ...

    def ask_ahead(self, questions: Iterable[Asked]) -> None:
        """Begin with questions, the likeliest first; give up what was begun and is not among them.

        No more of them are looked at than can be begun.
        """
        ...


def searched(
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    search: Callable[[Callable[[Question], Answer]], Result],
    rehearsal: Callable[[Callable[[Question], Answer]], object],
) -> Result:
    """What a search finds, while what it may ask next is begun.

    `rehearsal` asks the same as `search` and may go on after its end, but changes and tells
    nothing. It is run often, and seldom to its end.
    """
    answers: list[Answer] = []

    def upcoming() -> Iterator[Question]:
        """The question to be answered now, then those that may follow, the nearest first."""
        paths = deque([tuple(answers)])
        while paths:
            path = paths.popleft()
            question = _next(rehearsal, path)
            if question is None:
                continue
            known = ahead.known(question)
            if known is None:
                yield question
            paths.extend((*path, a) for a in (ahead.likely if known is None else [known]))

    def asked(question: Question) -> Answer:
        if ahead.known(question) is None:
            ahead.ask_ahead(upcoming())
        answers.append(ask(question))
        return answers[-1]

    return search(asked)


class _Unanswered(Exception):
    """Ends a rehearsal where its answers end."""


def _next(
    rehearsal: Callable[[Callable[[Question], Answer]], object], answers: Sequence[Answer]
) -> Question | None:
    """What is asked after these answers, None where nothing is."""
    left = iter(answers)
    unanswered: list[Question] = []

    def ask(question: Question) -> Answer:
        for answer in left:
            return answer
        unanswered.append(question)
        raise _Unanswered

    try:
        rehearsal(ask)
    except _Unanswered:
        return unanswered[0]
    return None
