"""The CPU-seconds in a report are those of the command."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import Job
from tcdebug.supervision.supervisor import begin

WORK = [sys.executable, "-IS", "-c", "sum(range(3_000_000))"]


def test_what_the_process_and_its_children_did_before_the_command_is_no_cost_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that replaces itself with the command, as `sh -c 'a && b'` may, leaves it that."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    subprocess.run(WORK, check=True)
    before = cpu_seconds()
    assert before > 0.1
    supervisor = begin("bisect", Job("search", "script.py", [], ""), quiet=True, fresh=True)
    subprocess.run(WORK, check=True)
    report = supervisor.costed(Report("no_failure"))
    used = cpu_seconds() - before
    assert 0.01 < report.cpu_seconds <= used + 0.001


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
