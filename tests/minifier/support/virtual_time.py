"""Simulated answers that take a second each: what a search costs with several at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tcdebug.minifier.search.rehearsal import search_ahead

Result = TypeVar("Result")


@dataclass
class VirtualTime:
    """Runs up to `jobs` questions at a time; `key` distinguishes them."""

    truth: Callable[[Any], Any]
    jobs: int
    likely: Sequence[Any] = (False, True)
    key: Callable[[Any], Hashable] = lambda question: question
    seconds: float = 0.0
    runs: int = 0
    asked: list[Hashable] = field(default_factory=list)
    answers: dict[Hashable, Any] = field(default_factory=dict)
    ends: dict[Hashable, tuple[float, Any]] = field(default_factory=dict)

    def known(self, question: Any) -> Any:
        return self.answers.get(self.key(question))

    def ask_ahead(self, questions: Iterable[Any]) -> None:
        if self.jobs == 1:
            return
        wanted: dict[Hashable, Any] = {}
        for question in questions:
            if self.known(question) is None:
                wanted[self.key(question)] = question
            if len(wanted) == self.jobs:
                break
        self.ends = {key: end for key, end in self.ends.items() if key in wanted}
        for key, question in wanted.items():
            if key not in self.ends:
                self.begin(key, question)

    def begin(self, key: Hashable, question: Any) -> None:
        self.runs += 1
        self.ends[key] = self.seconds + 1, question

    def ask(self, question: Any) -> Any:
        key = self.key(question)
        self.asked.append(key)
        if key not in self.answers:
            if key not in self.ends:
                self.begin(key, question)
            assert len(self.ends) <= self.jobs
            self.seconds = self.ends[key][0]
            for done in [k for k, (end, _) in self.ends.items() if end <= self.seconds]:
                self.answers[done] = self.truth(self.ends.pop(done)[1])
        return self.answers[key]

    def searched(self, search: Callable[[Callable[[Any], Any]], Result]) -> Result:
        """Return what a search without side effects finds."""
        return search_ahead(self.ask, self, search, search)
