"""`tcdebug since` with interpreters that stand for versions of torch."""

from __future__ import annotations

import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import fx

from tcdebug.compiler.events import run_folder
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.since.environments import (
    Environments,
    NotInstalled,
    made,
    ran,
    why_not_installed,
)
from tcdebug.since.trials import Standing, Trials

REPRO = """
import sys
class GraphJudge:
    "stands for the judge"
print("found   ", {found!r})
print({last!r})
sys.exit({status})
"""


WITHOUT_TCDEBUG = """
import os, runpy, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.modules["tcdebug"] = None
sys.argv[:] = sys.argv[1:]
if sys.argv[0] == "-c":
    exec(sys.argv[1])
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def interpreter(folder: Path, version: str) -> str:
    """Return an interpreter in which torch has another version, and nothing else."""
    packages = folder / version / "torch"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text(f"__version__ = {version!r}\n")
    path = folder / version / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={packages.parent} exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def since(tmp_path: Path, inside: Callable[..., Any]) -> Callable[..., Any]:
    """Run `tcdebug since` on a script with the torch versions 2.11.0, 2.12.1 and 2.13.0."""
    exact = ("2.11.0", "2.12.1", "2.13.0")
    pythons = [f"--python={v.rpartition('.')[0]}={interpreter(tmp_path, v)}" for v in exact]

    def run(text: str, *options: str) -> Any:
        (tmp_path / "script.py").write_text(text)
        return inside("since", "script.py", "--torch", "2.11..2.13", *pythons, *options)

    return run


def test_options_of_the_script_are_passed_to_it_wherever_they_are(
    since: Callable[..., Any],
) -> None:
    script = "import sys, torch\nassert sys.argv[1:] == ['--rate', '5', '--json'], sys.argv\n"
    for options in (["--rate", "5", "--all", "--", "--json"], ["--", "--rate", "5", "--json"]):
        assert since(script, *options).status == 4


def test_a_script_fails_since_a_version(since: Callable[..., Any]) -> None:
    script = "import torch\nassert torch.__version__ < '2.12', 'too new'\n"
    done = since(script, "--json")
    assert done.status == 0
    assert done.json["verdict"] == "fails since 2.12 (2.11 passes)"
    assert (done.json["since"], done.json["fixed"]) == (["2.12"], [])
    assert [(t["torch"], t["standing"]) for t in done.json["trials"]] == [
        ("2.11.0", "passes"),
        ("2.12.1", "fails in the same way"),
        ("2.13.0", "fails in the same way"),
    ]


def test_a_table_and_the_verdict_are_shown(since: Callable[..., Any]) -> None:
    done = since("import torch, os\nif torch.__version__ > '2.13': os.abort()\n", "--all")
    *_, last, verdict = done.stdout.splitlines()
    assert last.split()[:2] == ["2.13", "2.13.0"] and "ended by SIGABRT" in last
    assert verdict == "fails since 2.13 (2.12 passes)"


def test_the_exit_status_says_whether_there_is_an_answer(since: Callable[..., Any]) -> None:
    assert since("").status == 4
    missing = since("import torch\nif torch.__version__ < '2.12': import none_such\n")
    assert (missing.status, "cannot be run" in missing.stdout) == (1, True)
    assert since("", "--torch", "newest").status == 2


@pytest.mark.parametrize(
    ("status", "last", "standing"),
    [
        (0, "it does not fail", Standing.PASSES),
        (1, "it fails as expected", Standing.SAME),
        (125, "undecided: it fails in a different way", Standing.OTHER),
        (125, "undecided: eager fails", Standing.UNKNOWN),
        (2, "error", Standing.UNKNOWN),
    ],
)
def test_a_repro_judges_itself(status: int, last: str, standing: Standing, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text(REPRO.format(found={"kind": "x"}, last=last, status=status))
    given = {"2.13": interpreter(tmp_path, "2.13.0")}
    trial = Trials(script, (), Environments(given), 60.0).run("2.13")
    assert trial.standing is standing


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_repro_of_a_whole_script_judges_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch, sys\nsys.exit(3 if torch.__version__ > '2.13' else 4)\n")
    job = Job("search", str(script), [], "")
    failure = Outcome(Kind.EXCEPTION, "script", "script | exit 3", "exit status 3")
    write_repro(job, failure, (), tmp_path / "repro.py")
    given = {v: interpreter(tmp_path, f"{v}.0") for v in ("2.12", "2.13")}
    trials = Trials(tmp_path / "repro.py", (), Environments(given), 60.0)
    assert trials.run("2.13").standing is Standing.SAME
    assert trials.run("2.12").standing is Standing.OTHER
    script.write_text("")
    (tmp_path / "repro_script.py").unlink(missing_ok=True)
    assert trials.run("2.13").standing is Standing.UNKNOWN


@pytest.mark.slow
def test_a_repro_runs_where_tcdebug_is_not_installed(tmp_path: Path) -> None:
    graph = fx.symbolic_trace(lambda x: (x.tanh(),))
    case = Case(graph, (CaseInput("x", torch.ones(3)),))
    failure = Outcome(Kind.WRONG, "forward", "forward | wrong value")
    write(case, Repro(failure, {"backend": "eager"}), tmp_path / "repro.py")
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/without.py "$@"\n')
    (tmp_path / "without.py").write_text(WITHOUT_TCDEBUG)
    path.chmod(0o755)
    minor = ".".join(torch.__version__.split(".")[:2])
    environments = Environments({minor: str(path)})
    trial = Trials(tmp_path / "repro.py", (), environments, 120.0).run(minor)
    assert (trial.standing, trial.detail) == (Standing.PASSES, "it does not fail")


def test_a_script_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import subprocess
from pathlib import Path
child = subprocess.Popen(["sleep", "600"])
(Path(__file__).parent / "child").write_text(str(child.pid))
child.wait()
""")
    given = {"2.13": interpreter(tmp_path, "2.13.0")}
    trial = Trials(script, (), Environments(given), 2.0).run("2.13")
    assert (trial.standing, trial.detail) == (Standing.SAME, "no end after 2 s")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10  # the system takes a moment to end what was killed
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def test_an_interpreter_with_another_version_is_refused(tmp_path: Path) -> None:
    environments = Environments({"2.12": interpreter(tmp_path, "2.13.0")})
    with pytest.raises(NotInstalled, match=r"has torch 2\.13\.0, not 2\.12"):
        environments.interpreter("2.12")


def test_an_environment_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    none = Environments(base=str(tmp_path / "python"), folder=tmp_path)
    with pytest.raises(NotInstalled, match="No such file"):
        none.interpreter("2.13")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            "WARNING: Location 'file:///x' is ignored: it is neither a file nor a directory.\n"
            "ERROR: Could not find a version that satisfies the requirement torch==2.99.* (2.1)\n"
            "ERROR: No matching distribution found for torch==2.99.*\n"
            "[notice] A new release of pip is available",
            "Could not find a version that satisfies the requirement torch==2.99.* (2.1)",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<C "
            "object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection "
            "refused')': /simple/torch/\n"
            "ERROR: Cannot install torch==2.12.* because of conflicting dependencies.\n",
            "no package index was reached: Failed to establish a new connection: [Errno 111] "
            "Connection refused",
        ),
        (
            "  x No solution found when resolving dependencies:\n"
            "  ╰─▶ Because there is no version of torch==2.99.*, it cannot be used.",
            "Because there is no version of torch==2.99.*, it cannot be used.",
        ),
        ("Killed\n", "Killed"),
        (
            "Collecting torch\n\nThe conflict is caused by:\n"
            "    The user requested torch==2.99.0\n"
            "    The user requested (constraint) torch<=2.14.1\n\n"
            "To fix this you could try to:\n1. loosen the range\n"
            "ERROR: Cannot install torch==2.99.0 because of conflicting dependencies.\n",
            "The user requested torch==2.99.0; The user requested (constraint) torch<=2.14.1",
        ),
    ],
    ids=["unknown version", "no network", "uv", "something else", "conflict"],
)
def test_the_reason_of_an_installer_is_found_among_its_warnings(output: str, why: str) -> None:
    assert why_not_installed(output) == why


WHEEL = {
    "METADATA": "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "".join(f"probe-1.0.dist-info/{n},,\n" for n in ("METADATA", "WHEEL", "RECORD")),
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_an_environment_is_made_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    wheel, folder = tmp_path / "probe-1.0-py3-none-any.whl", tmp_path / "environment"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("probe.py", "print('here')")
        for name, text in WHEEL.items():
            file.writestr(f"probe-1.0.dist-info/{name}", text)
    for _ in range(2):
        python = made(folder, sys.executable, [str(wheel)])
        assert ran([str(python), "-c", "import probe"]) == "here\n"


def test_a_result_beside_a_run_is_kept_for_its_issue(
    tmp_path: Path, inside: Callable[..., Any]
) -> None:
    folder = tmp_path / ".tcdebug" / "20260101-000000-bisect"
    folder.mkdir(parents=True)
    run_folder.write_info(folder, "bisect")
    (folder / "repro.py").write_text("raise SystemExit(1)")
    python = f"--python=2.13={interpreter(tmp_path, '2.13.0')}"
    assert inside("since", "--torch=2.13", python, str(folder / "repro.py")).status == 0
    assert '"verdict":"fails in 2.13"' in (folder / "since.json").read_text()
