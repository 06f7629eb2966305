"""`tcdebug fuzz` as a user has it: findings, their states, formats, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PLANTED = """
import ctypes
import torch
from tcdebug.compiler.lower import LOWERINGS

def broken(site, *args, **kwargs):
    {what}

for op in {ops}:
    LOWERINGS[op] = broken
"""
SUM = "(torch.ops.aten.sum.default, torch.ops.aten.sum.dim_IntList)"


@pytest.fixture
def planted(tmp_path: Path) -> Any:
    """Write a setup file that breaks lowerings; its name."""

    def write(what: str, ops: str = SUM) -> str:
        (tmp_path / "planted.py").write_text(PLANTED.format(what=what, ops=ops))
        return "planted.py"

    return write


def hunted(tcdebug: Any, setup: str, *more: str) -> Any:
    """The first finding of a campaign, which is there."""
    done = tcdebug(
        "fuzz", "run", "--examples=400", "--seed=0", "--no-bisect", "--stop-after=1",
        f"--setup={setup}", "-q", "--json", *more,
    )  # fmt: skip
    assert done.status == 1, done.stdout + done.stderr
    return done.json


def finding(tmp_path: Path, slug: str) -> Any:
    """What is kept of a finding."""
    path = tmp_path / ".tcdebug" / "findings" / slug / "finding.json"
    return json.loads(path.read_text())


def test_an_exception_is_found_shrunk_to_one_operation_and_goes_through_all_states(
    tcdebug: Any, planted: Any, tmp_path: Path
) -> None:
    setup = planted('raise ValueError("planted")')
    (slug,) = hunted(tcdebug, setup)["new"]
    kept = finding(tmp_path, slug)
    assert kept["ops"] == ["sum"]
    assert kept["kind"] == "exception"
    assert kept["program"]["steps"][0]["text"] == "a0.sum()"
    assert kept["program"]["arguments"][0]["text"] == "torch.ones(())"
    replayed = tcdebug("fuzz", "replay")
    assert replayed.status == 0
    assert replayed.stdout == f"{slug}: passes\n", "it passes without the setup"
    assert tcdebug("fuzz", "triage", "--known", "--json").json == {slug: "known"}
    assert tcdebug("fuzz", "triage", "--json").json == {slug: "fixed"}


def test_a_segfault_is_a_finding_and_not_the_end(
    tcdebug: Any, planted: Any, tmp_path: Path
) -> None:
    (slug,) = hunted(tcdebug, planted("ctypes.string_at(0)"))["new"]
    kept = finding(tmp_path, slug)
    assert kept["signature"] == "compile | SIGSEGV"
    assert kept["ops"] == ["sum"]


def test_continuous_integration_fails_for_what_is_new_and_only_once(
    tcdebug: Any, planted: Any
) -> None:
    setup = planted('raise ValueError("planted: %, here")')
    command = (
        "fuzz", "ci", "--examples=60", f"--setup={setup}", "--stop-after=1", "-q", "--findings=a",
        "--format=github",
    )  # fmt: skip
    first = tcdebug(*command)
    assert first.status == 1
    assert first.stdout.count("::error file=a/") == 1
    assert "planted: %25, here" in first.stdout
    assert tcdebug(*command).status == 0, "what is known does not fail"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--backend=nonsense", "--examples=1"), "no backend 'nonsense'"),
        (("replay", "nonsense"), "no finding 'nonsense'"),
        (("stats",), "no campaign"),
        (("run", "--database=redis://localhost", "--examples=1"), "pip install 'tcdebug[redis]'"),
    ],
)
def test_bad_input_is_a_message_and_exit_status_2(
    tcdebug: Any, arguments: tuple[str, ...], message: str
) -> None:
    done = tcdebug("fuzz", *arguments)
    assert done.status == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_equal_seeds_judge_equal_programs_with_one_worker(tcdebug: Any) -> None:
    command = (
        "fuzz", "run", "--backend=eager", "--examples=12", "--seed=7", "-j1", "--json", "-q",
        "--database=",
    )  # fmt: skip
    counted = ("examples", "passed", "operations", "pairs", "second_calls")
    first, second = tcdebug(*command).json, tcdebug(*command).json
    assert [first[name] for name in counted] == [second[name] for name in counted]
    assert first["examples"] == 12
