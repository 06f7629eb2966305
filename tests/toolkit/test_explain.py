"""tcdebug explain, as a user runs it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.minifier.processes.job import SCRIPT_FAILED
from tcdebug.supervision.foreground import ending

Command = Callable[..., Any]

SCRIPT = """
@torch.compile(backend="aot_eager")
def f(x, n):
    y = x * n
    print("said by the script")
    return y.relu()
f(torch.ones(3), 2)
f(torch.ones(3), 3)
"""


DOCS = Path(__file__).parents[2] / "docs"
PRINTED = re.compile(r"<!-- prints tcdebug explain .* -->\n```text\n(.*?)```", re.DOTALL)


def plain(line: str) -> str:
    """A line without what differs between runs and versions of torch."""
    return re.sub(r"[\d.]+( s\b| guards?)", r"N\1", line).strip()


def test_breaks_and_recompiles_are_explained_on_one_screen_as_the_tutorial_shows(
    tcdebug: Command, tmp_path: Path
) -> None:
    shutil.copy(DOCS / "examples" / "tutorial.py", tmp_path)
    done = tcdebug("explain", "tutorial.py")
    assert done.status == 0, done.stderr
    shown = PRINTED.search((DOCS / "tutorial.md").read_text())
    assert shown is not None
    printed = [plain(line) for line in done.stdout.splitlines()]
    assert printed[:-1] == [plain(line) for line in shown[1].splitlines()]
    assert len(printed) < 30
    assert not any(line.startswith("scores (8, 8)") for line in printed)


def test_a_script_that_fails_is_explained_up_to_there(
    cold: Command, script: Callable[[str], str]
) -> None:
    name = script(SCRIPT + "raise KeyError(3)")
    done = cold("-m", "tcdebug", "explain", "--json", "--backend", "eager", name)
    assert done.status == 1
    assert [f["name"] for f in done.json["frames"]] == ["f", "torch_dynamo_resume_in_f_at_6"]
    assert "error TCD013: the script raised KeyError: 3" in done.stderr


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'


@pytest.mark.parametrize(
    ("status", "output", "said"),
    [
        (
            SCRIPT_FAILED,
            f"{TRACEBACK}KeyError: 3\n\nSet TORCHDYNAMO_VERBOSE=1\n",
            "raised KeyError: 3",
        ),
        (1, "bad thing\n", "ended with exit status 1: bad thing"),
        (3, "", "ended with exit status 3"),
        (-11, "a\nb", "ended with signal 11: b"),
    ],
)
def test_the_end_of_a_script_is_its_exception_or_its_status(
    status: int, output: str, said: str, tmp_path: Path
) -> None:
    log = tmp_path / "script.log"
    log.write_text(output)
    assert ending(status, log) == f"the script {said}"


def test_a_script_without_a_graph_is_status_4(
    tcdebug: Command, script: Callable[[str], str]
) -> None:
    done = tcdebug("explain", script("torch.ones(3)"))
    assert done.status == 4
    assert "compiles no graph" in done.stderr
