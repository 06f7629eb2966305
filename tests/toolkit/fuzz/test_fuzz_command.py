"""`tcdebug fuzz` as a user runs it: findings, their states, formats, exit statuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tcdebug.fuzz.confirmation import judged_again
from tcdebug.fuzz.findings import Finding, Findings
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.worker import unfit
from tcdebug.strategies.program import Argument, Program, ProgramStep

PLANTED = """
import ctypes
import torch
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY

def broken(site, *args, **kwargs):
    {what}

for op in LOWERINGS:
    REGISTRY.lowerings[op] = broken
"""


@pytest.fixture
def planted(tmp_path: Path) -> Any:
    """Write a setup file that breaks all lowerings and return its name."""

    def write(what: str) -> str:
        (tmp_path / "planted.py").write_text(PLANTED.format(what=what))
        return "planted.py"

    return write


def hunted(tcdebug: Any, setup: str, *more: str) -> Any:
    """The first finding of a campaign, which must exist."""
    done = tcdebug(
        "fuzz", "run", "-j1", "--examples=400", "--seed=0", "--no-bisect", "--stop-after=1",
        f"--setup={setup}", "-q", "--json", *more,
    )  # fmt: skip
    assert done.status == 1, done.stdout + done.stderr
    return done.json


def finding(tmp_path: Path, slug: str) -> Any:
    """The stored data of a finding."""
    path = tmp_path / ".tcdebug" / "findings" / slug / "finding.json"
    return json.loads(path.read_text())


def test_an_exception_is_found_with_a_small_program_and_goes_through_all_states(
    tcdebug: Any, planted: Any, tmp_path: Path
) -> None:
    setup = planted('raise ValueError("planted")')
    (slug,) = hunted(tcdebug, setup)["new"]
    kept = finding(tmp_path, slug)
    cases = tcdebug("logs", "query", "--event", "fuzz.case", "--json").stdout.splitlines()
    scripts = {json.loads(case)["data"]["script"] for case in cases} - {""}
    assert all("class Graph" in text for text in scripts) and len(scripts) == 1, "before shrinking"
    assert kept["ops"] == ["add"]
    assert kept["kind"] == "exception"
    assert kept["note"] == "the fuzzer's oracle fails in a fresh process"
    assert kept["program"]["steps"][0]["text"] == "torch.add(a0, a0)"
    assert kept["program"]["arguments"][0]["text"] == "torch.ones(())"
    replayed = tcdebug("fuzz", "replay")
    assert replayed.status == 0
    assert replayed.stdout == f"{slug}: passes\n", "it passes without the setup"
    assert tcdebug("fuzz", "triage", "--known", "--json").json == {slug: "known"}
    assert tcdebug("fuzz", "triage", "--json").json == {slug: "fixed"}


@pytest.mark.slow
def test_a_finding_that_does_not_need_the_backend_says_so(tmp_path: Path) -> None:
    """AOTAutograd clears the elements between those of an unfold that is written to."""
    made = Program(
        (Argument("a0", "torch.ones((2,))", "torch.ones((2,))"),),
        (
            ProgramStep("v0", "a0.unfold(-1, 1, 2)", "unfold", ("a0",)),
            ProgramStep("v1", "v0.add_(2)", "add_", ("v0",)),
        ),
        ("v1",),
        options=(("autotune", True),),
    )
    found = Finding("forward | wrong value", "wrong", "tcdebug", "", made, "2.13.0")
    Findings(tmp_path / "findings").add(found)
    job = FuzzJob(str(tmp_path / "run"), str(tmp_path / "findings"))
    assert judged_again(found, job, tmp_path / "again").note == (
        "the fuzzer's oracle fails in a fresh process; "
        "the program fails in the same way with the backend aot_eager"
    )


def test_a_segfault_fails_ci_and_fuzzing_continues(
    tcdebug: Any, planted: Any, tmp_path: Path
) -> None:
    setup = planted("ctypes.string_at(0)")
    done = tcdebug(
        "fuzz", "ci", "--examples=8", f"--setup={setup}", "--stop-after=1", "-q", "--findings=a",
        "--output-format=github", "--also=sarif=a.sarif", "--also=markdown=a.md",
    )  # fmt: skip
    assert done.status == 1
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert len(run["results"]) == 1
    assert (tmp_path / "a.md").read_text().startswith("### tcdebug fuzz\n")
    assert done.stdout.count("::error file=a/") == 1
    (path,) = (tmp_path / "a").glob("*/finding.json")
    kept = json.loads(path.read_text())
    assert kept["signature"] == "compile | SIGSEGV"
    assert kept["ops"] == ["add"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--backend=nonsense", "--examples=1"), "no backend 'nonsense'"),
        (("replay", "nonsense"), "no finding 'nonsense'"),
        (("stats",), "no campaign"),
        (("ci", "--also=sarif"), "'sarif' is not FORMAT=FILE; the formats are concise,"),
        (("ci", "--also=html=a.html"), "'html=a.html' is not FORMAT=FILE"),
        (("ci", "-o", "none/a.md"), "cannot write none/a.md"),
        (
            ("run", "--database=redis://127.0.0.1:1", "--examples=1"),
            "redis://127.0.0.1:1 does not answer: Error 111 connecting to 127.0.0.1:1.",
        ),
    ],
)
def test_bad_input_is_a_message_and_exit_status_2(
    tcdebug: Any, arguments: tuple[str, ...], message: str
) -> None:
    done = tcdebug("fuzz", *arguments)
    assert done.status == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)  # Python then finds no such package
    job = FuzzJob(run_dir="", findings="", database="redis://localhost")
    assert unfit(job) == "import of redis halted; None in sys.modules: pip install 'tcdebug[redis]'"


def test_sigterm_ends_a_campaign_with_its_numbers(
    tmp_path: Path, environment: Mapping[str, str], warm_server: Any
) -> None:
    process = warm_server.popen(
        [
            warm_server.path, "-m", "tcdebug", "fuzz", "run", "--backend=eager", "-j1", "-q",
            "--programs=python", "--seconds=300", "--no-bisect", "--json",
        ],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob(".tcdebug/*/worker-0.log")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output)["new"] == []
