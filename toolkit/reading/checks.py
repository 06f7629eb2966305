"""What `run --check` has compared, in all processes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tcdebug.reading.run_dir import Record

CHECKED = {
    "results": ("graph", "compared with eager"),
    "guards": ("compiled function", "checked for missing guards"),
}
"""What is checked, and how, by the value of --check."""


def checks(records: Iterable[Record]) -> list[str]:
    """Return how many calls were checked, and how many were not, in one line each."""
    found = [r for r in records if r["event"] == "call.checked"]
    lines = []
    for check in CHECKED:
        of_check = [r for r in found if r["data"]["check"] == check]
        compared = [r for r in of_check if r["data"]["verdict"] != "not compared"]
        if compared:
            lines.append(_compared(check, compared))
        reasons = Counter(r["data"]["detail"] for r in of_check if r["data"]["detail"])
        lines += [f"{_of(n, 'call')}: {reason}" for reason, n in reasons.items()]
    return lines


def _compared(check: str, records: list[Record]) -> str:
    (noun, how), subjects = CHECKED[check], {(r["pid"], r["data"]["of"]) for r in records}
    wrong = sum(r["data"]["verdict"] != "ok" for r in records)
    said = "none is" if not wrong else "1 is" if wrong == 1 else f"{wrong} are"
    return f"{_of(len(records), 'call')} of {_of(len(subjects), noun)} {how}: {said} wrong"


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
