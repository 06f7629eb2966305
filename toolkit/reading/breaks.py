"""Parses Dynamo's text of a graph break: what, why, remedies, and torch's page about it."""

from __future__ import annotations

import re

import msgspec

PART = re.compile(r"^\s+(Explanation|Hint|Developer debug context): ", re.MULTILINE)
PAGE = re.compile(r"https?://\S+?/(gb\d+)\S*")
PREAMBLE = re.compile(r"^(Encountered graph break|Graph break in user code)", re.IGNORECASE)
ADVICE_OF_NO_USE = ("please report an issue", "this graph break is fundamental", "it may be")


class Break(msgspec.Struct, frozen=True):
    """A distinct graph break. `id` is torch's, such as gb0059, and `page` explains it."""

    what: str
    where: str
    explanation: str
    hints: list[str]
    id: str
    page: str
    times: int = 1


def read_break(reason: str, where: str) -> Break:
    """Return the parts of a reason. If it has another form, all of it is `what`."""
    pieces = PART.split(reason)
    head, parts = pieces[0], list(zip(pieces[1::2], pieces[2::2], strict=True))
    page = PAGE.search(reason)
    explanations = [_plain(text) for kind, text in parts if kind == "Explanation"]
    hints = [_plain(text) for kind, text in parts if kind == "Hint"]
    return Break(
        _title(head),
        where,
        explanations[0] if explanations else "",
        [h for h in hints if not h.lower().startswith(ADVICE_OF_NO_USE)],
        page[1] if page else "",
        page[0] if page else "",
    )


def _title(head: str) -> str:
    """Return the first line that says what could not be done."""
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    kept = [line for line in lines if not PREAMBLE.match(line)] or lines or [""]
    return kept[0]


def _plain(text: str) -> str:
    """Return one part on one line, without Dynamo's details for its developers."""
    return " ".join(text.partition("\n\n")[0].split())
