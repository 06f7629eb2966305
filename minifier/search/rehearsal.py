"""Predicts the next questions of a search by rehearsing it on known and likely answers.

A search is a function of the answers it gets, so its next question follows from the answers before
it. A rehearsal runs only when the prediction is needed.
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
    """Something that can start on a question before it is asked."""

    @property
    def likely(self) -> Sequence[Told]:
        """The answers to expect, the most likely first."""
        ...

    def known(self, question: Asked) -> Told | None:
        """Return the answer to a question if it is already known."""
        ...

    def ask_ahead(self, questions: Iterable[Asked]) -> None:
        """Start on questions, the most likely first, and drop started ones that are not among them.

        It takes no more questions from the iterable than it can start.
        """
        ...


def search_ahead(
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    search: Callable[[Callable[[Question], Answer]], Result],
    rehearsal: Callable[[Callable[[Question], Answer]], object],
) -> Result:
    """Return the result of a search, and start on its likely next questions in advance.

    `rehearsal` asks the same questions as `search`, and may continue after its end, but it changes
    and reports nothing. It runs often, and rarely to its end.
    """
    answers: list[Answer] = []

    def upcoming() -> Iterator[Question]:
        """Yield the current question, then those that may follow, the nearest first."""
        paths = deque([tuple(answers)])
        while paths:
            path = paths.popleft()
            question = _next_question(rehearsal, path)
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
    """Ends a rehearsal at its first unanswered question."""


def _next_question(
    rehearsal: Callable[[Callable[[Question], Answer]], object], answers: Sequence[Answer]
) -> Question | None:
    """Return the question that follows these answers; None if the rehearsal ends."""
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
