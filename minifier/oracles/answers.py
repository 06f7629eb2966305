"""The answers that an oracle remembers, in a file that outlives the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import decoded
from tcdebug.minifier.search.repeats import Tally


class Answer(msgspec.Struct, frozen=True):
    """One line of the file: the key of a question, and the tally of its runs so far."""

    question: str
    tally: Tally


class Answers:
    """Tallies by question. `earlier` is the file of an interrupted run that this one continues."""

    def __init__(self, path: Path, earlier: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, Tally] = {}
        for source in (earlier, path):
            if source is not None and source.exists():
                self.known.update((a.question, a.tally) for a in read_answers(source))
        path.write_bytes(b"".join(_line(q, t) for q, t in self.known.items()))

    def add(self, question: str, tally: Tally) -> None:
        """Remember the tally of a question. The line is appended in a single write."""
        self.known[question] = tally
        with self.path.open("ab") as file:
            file.write(_line(question, tally))


def _line(question: str, tally: Tally) -> bytes:
    return msgspec.json.encode(Answer(question, tally)) + b"\n"


def read_answers(path: Path) -> Iterator[Answer]:
    """Yield the answers in a file. An incomplete last line is skipped."""
    return decoded(path.read_bytes().splitlines(), Answer)
