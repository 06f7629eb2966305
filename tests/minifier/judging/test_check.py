"""The user's own command as a judge: real commands on real scripts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import backends
import pytest
import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.reproduction import verified
from tcdebug.minifier.judging.check import outcome_of, run_check
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle

BAD = Outcome(Kind.BAD, "check", "check | bad")


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("true", Kind.OK, ""),
        ("false", Kind.BAD, "the check ended with exit status 1"),
        ("exit 124 #", Kind.BAD, "the check ended with exit status 124"),
        ("exit 125 #", Kind.INVALID, "the check skips it"),
        ("kill -SEGV $$ #", Kind.BAD, "the check ended with signal 11"),
        ("sh -c 'kill -SEGV $$' #", Kind.BAD, "the check ended with exit status 139"),
        ("no-such-command-here", Kind.INVALID, "the check could not be run: 127"),
    ],
)
def test_an_exit_status_means_what_it_means_to_git_bisect(
    command: str, kind: Kind, message: str, tmp_path: Path
) -> None:
    found = run_check(command, tmp_path / "repro.py", tmp_path)
    assert (found.kind, found.message) == (kind, message)
    assert found.seconds > 0


def test_every_bad_result_is_the_same_bug() -> None:
    assert outcome_of(1).same_bug(outcome_of(-11))
    assert not outcome_of(1).same_bug(outcome_of(125))


@pytest.mark.parametrize(
    "command",
    ["grep -q wanted", "grep -q wanted {}", 'test -f {} && grep -q wanted "$TCDEBUG_CANDIDATE" #'],
)
def test_the_path_replaces_its_placeholder(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "repro.py").write_text("what is wanted")
    assert run_check(command, folder / "repro.py", tmp_path).kind is Kind.OK
    (folder / "repro.py").write_text("something else")
    assert run_check(command, folder / "repro.py", tmp_path) == outcome_of(1)


def test_a_check_that_hangs_ends_at_its_time_limit(tmp_path: Path) -> None:
    found = run_check("sleep 1000 #", tmp_path / "repro.py", tmp_path, seconds=0.5)
    assert found == Outcome(Kind.HANG, "check", "check | hang", "no end after 0 s")
    assert found.seconds < 5


def test_the_environment_holds_what_is_off_and_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDEBUG_SESSION", "1")
    command = 'test "$TCDEBUG_OFF" = fuse,lower && test -z "$TCDEBUG_SESSION" #'
    assert run_check(command, tmp_path / "repro.py", tmp_path, ["fuse", "lower"]).kind is Kind.OK


HOLDS_TANH = """
import runpy, sys
graph = runpy.run_path(sys.argv[1])["Graph"]()
source = open(sys.argv[1]).read()
sys.exit("tanh" in source.partition("class Graph")[2].partition("def inputs")[0])
"""


def asked(folder: Path, script: str, target: str = "eager") -> Oracle:
    """Return an oracle whose check is a Python script."""
    path = folder / "check.py"
    if not path.exists() or path.read_text() != script:
        path.write_text(script)
    command = f"{shlex.quote(sys.executable)} {path}"
    subject = GraphSubject(backends.target(target), EventLog(folder), Criteria(check=command))
    return graph_oracle(subject, Limits(60.0), Budget())


@pytest.mark.usefixtures("warm")
def test_a_candidate_is_a_script_that_the_command_reads(tmp_path: Path) -> None:
    oracle = asked(tmp_path, HOLDS_TANH)
    tanh = captured(lambda x: x.tanh() + 1, torch.ones(3))
    other = captured(lambda x: x.sin() + 1, torch.ones(3))
    assert oracle.ask(tanh, Toggles(), "holds tanh") == outcome_of(1)
    assert oracle.ask(other, Toggles(), "does not").kind is Kind.OK
    assert list((tmp_path / "check").iterdir()) == []


@pytest.mark.usefixtures("warm")
def test_an_edited_check_is_run_again(tmp_path: Path) -> None:
    case = captured(lambda x: x.tanh() + 1, torch.ones(3))
    assert asked(tmp_path, HOLDS_TANH).ask(case, Toggles(), "bad").failed
    again = asked(tmp_path, HOLDS_TANH)
    assert again.ask(case, Toggles(), "known").failed
    edited = asked(tmp_path, "# always good")
    assert not edited.ask(case, Toggles(), "good now").failed
    assert (again.reruns, edited.reruns) == (0, 1)


RUNS_IT = """
import os, subprocess, sys
assert open(sys.argv[1]).read() == open(os.environ["TCDEBUG_CANDIDATE"]).read()
sys.exit(subprocess.run([sys.executable, sys.argv[1]]).returncode)
"""


@pytest.mark.usefixtures("warm")
def test_decisions_of_a_commands_compiles_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TCDEBUG_LOG")
    oracle = asked(tmp_path, RUNS_IT, "tcdebug")
    case = captured(lambda x: x.tanh() + 1, torch.ones(3))
    found = oracle.ask(case, Toggles(), "runs it")
    assert found.kind is Kind.OK
    assert "lower.aten.tanh.default" in {d.unit for d in found.decisions if d.allowed}
    off = oracle.ask(case, Toggles.parse(["lower"]), "runs it with lower off")
    assert {d.allowed for d in off.decisions if d.unit.startswith("lower")} == {False}


def test_a_repro_is_verified_by_the_command(tmp_path: Path) -> None:
    criteria = asked(tmp_path, "import os, sys; sys.exit('TCDEBUG_OFF' not in os.environ)").criteria
    script = tmp_path / "repro.py"
    script.write_text("")
    as_is, off, only = verified(criteria, script, ["fuse"], [], tmp_path / "check", 60.0, None)
    assert as_is.reproduced
    assert off is not None and off.status == 0
    assert only is None
