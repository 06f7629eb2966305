"""Whether a script fails without kernels is asked first, by runs that leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.processes.job import Job
from tcdebug.supervision.first_look import fails_without_kernels

WRONG = """
import collections
import torch

@torch.compile
def f(x, recent):
    recent.appendleft(5)
    return x + 1

recent = collections.deque([1, 2, 3], maxlen=3)
f(torch.ones(1), recent)
{before}
assert list(recent) == [5, 1, 2], recent
"""


def asked(
    folder: Path, text: str, left: float = 600.0, **changes: object
) -> tuple[bool, list[str]]:
    """The answer for a script, and what was said."""
    script, run = folder / "script.py", folder / "run"
    script.write_text(text)
    run.mkdir()
    job = Job("search", str(script), [], str(run), **changes)  # type: ignore[arg-type]
    said: list[str] = []
    return fails_without_kernels(job, EventLog(run), left, said.append, None), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "fails"),
    [
        ("", True),
        ("open('recent.txt', 'w').write('1')", False),
        ("recent = [5, 1, 2]", False),
        ("recent = [1]", False),
    ],
    ids=["fails", "writes a file", "passes", "fails in eager"],
)
def test_a_script_that_fails_without_kernels_is_distinguished_from_others(
    before: str, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer, said = asked(tmp_path, WRONG.format(before=before), 2000.0)
    assert answer is fails
    assert said == ["it fails where its graphs run in eager: none is judged alone"] * fails
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "script.py"]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("import torch\nprint(torch.compile)", {}),
        ("assert 0", {"bisect": False}),
        ("assert 0", {"wanted": Criteria(check="false")}),
        ("assert 0", {"resume": "earlier"}),
    ],
    ids=["checks nothing", "minify", "a command decides", "resumed"],
)
def test_it_is_not_asked_if_the_answer_could_not_be_used(
    text: str, changes: dict[str, object], tmp_path: Path
) -> None:
    assert asked(tmp_path, text, **changes) == (False, [])
    assert list((tmp_path / "run").iterdir()) == []
