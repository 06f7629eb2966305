"""tcdebug explain, as a user has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_breaks_and_recompiles_are_explained_on_one_screen(
    tcdebug: Command, script: Callable[[str], str]
) -> None:
    done = tcdebug("explain", script(SCRIPT))
    assert done.status == 0, done.stderr
    assert len(done.stdout.splitlines()) < 40
    assert 'script.py:6  print("said by the script")' in done.stdout
    assert "L['n']: 2 -> 3 (scalar change)" in done.stdout
    assert "said by the script\n" not in done.stdout


def test_a_script_that_fails_is_explained_up_to_there(
    tcdebug: Command, script: Callable[[str], str]
) -> None:
    done = tcdebug("explain", "--json", "--backend", "eager", script(SCRIPT + "raise KeyError(3)"))
    assert done.status == 1
    assert [f["name"] for f in done.json["frames"]] == ["f", "torch_dynamo_resume_in_f_at_6"]
    assert "KeyError: 3" in done.stderr


def test_a_script_without_a_graph_is_status_4(
    tcdebug: Command, script: Callable[[str], str]
) -> None:
    done = tcdebug("explain", script("torch.ones(3)"))
    assert done.status == 4
    assert "compiles no graph" in done.stderr
