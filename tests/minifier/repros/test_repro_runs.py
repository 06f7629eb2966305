"""Repro scripts that run: their exit status, and which variant of a script is kept."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from captured import captured
from repro_scripts import (
    CRASH,
    EAGER,
    EXCEPTION,
    PLANT,
    WRONG,
    checkpointed,
    namespace_of,
    seeded,
    written,
)  # fmt: skip

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.verify import (
    AS_CALLED,
    IN_SCRIPT,
    LATE,
    Settled,
    settle,
    verify,
    verify_switched,
)

ELSEWHERE = Outcome(
    Kind.EXCEPTION,
    "compile",
    "compile | KeyError | cases/outcome.py:normalised | <name>",
    "KeyError: 'tanh'",
)
ENDED = Outcome(Kind.CRASH, "compile", "compile | ended")
ENDLESS = Outcome(Kind.HANG, "forward", "forward | hang", "a kernel does not end", endless=True)
HANG = Outcome(Kind.HANG, "compile", "compile | hang")


def planted_repro(folder: Path, outcome: Outcome, body: str) -> Path:
    """Write a repro of tanh for a backend with this body."""
    case = captured(lambda x: x.tanh() * 2, torch.ones(3, requires_grad=True))
    seconds = 2.0 if outcome.kind is Kind.HANG else 60.0
    setup = PLANT.format(body=body)
    content = Repro(outcome, {"backend": "planted"}, setup=setup, seconds=seconds)
    write(seeded(case), content, folder / "repro.py")
    return folder / "repro.py"


def test_a_wrong_number_is_reproduced_in_a_fresh_process(tmp_path: Path) -> None:
    body = "return lambda *values: [v + 1 for v in module(*values)]"
    done = verify(planted_repro(tmp_path, WRONG, body))
    assert (done.status, done.reproduced) == (1, True), done.output
    assert "found    {'kind': 'wrong', 'what': 'forward | wrong value'}" in done.output
    assert done.output.endswith("it fails as expected\n")


IN_PROCESS_WITH_THREADS = """
import runpy, sys, torch
import torch._inductor.config
torch._inductor.config.compile_threads = 2
torch.compile(lambda x: x + {number})(torch.ones(2))
sys.exit(runpy.run_path("repro.py")["main"]())
"""


@pytest.mark.usefixtures("warm")
def test_a_repro_runs_in_a_process_that_has_compiled_with_threads(tmp_path: Path) -> None:
    number = time.time_ns() % 1_000_003  # threads compile only kernels that no cache has
    case = captured(lambda x: x * number, torch.ones(2))
    content = Repro(WRONG, {"backend": "inductor"}, seconds=20.0)
    write(seeded(case), content, tmp_path / "repro.py")
    (tmp_path / "main.py").write_text(IN_PROCESS_WITH_THREADS.format(number=number))
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(("runs", "status"), [(3, 1), (2, 0)])
@pytest.mark.usefixtures("warm")
def test_if_a_failure_is_flaky_several_runs_must_pass(
    tmp_path: Path, runs: int, status: int
) -> None:
    ran = tmp_path / "ran"
    setup = PLANT.format(
        body=f"open({str(ran)!r}, 'a').write('x')\n"
        f"    if len(open({str(ran)!r}).read()) == 3: raise KeyError('tanh')\n"
        "    return module.forward"
    )
    case = captured(lambda x: x.tanh() * 2, torch.ones(3))
    content = Repro(EXCEPTION, {"backend": "planted"}, setup=setup, runs=runs)
    write(case, content, tmp_path / "repro.py")
    done = verify(tmp_path / "repro.py")
    assert done.status == status, done.output
    assert ran.read_text() == "x" * runs


@pytest.mark.usefixtures("warm")
def test_a_repro_of_the_compiler_takes_units_and_stored_data(tmp_path: Path) -> None:
    """Run elsewhere, with only its data. Nothing is wrong here, whatever is off."""
    case = captured(checkpointed, torch.randn(12, 12, requires_grad=True))
    content = Repro(WRONG, {"backend": "tcdebug", "options": {"log": False}}, ("fuse",))
    assert write(case, content, tmp_path / "repro.py") == "stored"
    (tmp_path / "unrelated.py").write_text("")
    done = verify(tmp_path / "repro.py", ["fuse"])
    assert (done.status, done.reproduced) == (0, False), done.output
    assert done.output.endswith("it does not fail\n")


@pytest.mark.parametrize(
    ("outcome", "body", "status", "output"),
    [
        (EXCEPTION, "raise KeyError('tanh')", 1, "'class': 'KeyError', 'message': \"'tanh'\""),
        (EXCEPTION, "raise ValueError('tanh')", 125, "'class': 'ValueError'"),
        (EXCEPTION, "raise KeyError('tanh', 'sin')", 125, "undecided: it fails in a different way"),
        (ELSEWHERE, "raise KeyError('tanh')", 125, "'what': '<name>'"),
        (EXCEPTION, "return module.forward", 0, "it does not fail"),
        (CRASH, "import ctypes; return lambda *v: ctypes.string_at(0)", 1, "'signal': 11"),
        (CRASH, "import os; os._exit(3)", 125, "'kind': 'unknown', 'phase': 'forward'"),
        (ENDED, "import os; os.abort()", 1, "'kind': 'crash', 'phase': 'forward', 'signal': 6"),
        (Outcome(Kind.OK), "raise KeyError('tanh')", 1, "it fails, although this script expects "),
        (Outcome(Kind.OK), "return module.forward", 0, "it does not fail"),
        (HANG, "import time; time.sleep(1000)", 1, "{'kind': 'hang'"),
        (WRONG, "return lambda *values: [v[1:] for v in module(*values)]", 125, "wrong shape"),
        (WRONG, "return lambda *values: [v.double() for v in module(*values)]", 125, "dtype"),
        (
            Outcome(Kind.WRONG, "backward", "backward | wrong value"),
            "return lambda *values: [v + 1 for v in module(*values)]",
            125,
            "forward | wrong value",
        ),
    ],
)
@pytest.mark.usefixtures("backward_after_fork")
def test_how_a_script_ends(
    outcome: Outcome,
    body: str,
    status: int,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = namespace_of(planted_repro(tmp_path, outcome, body))
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    with open(1, "w", closefd=False, buffering=1) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)  # the child writes to descriptor 1
        assert names["main"]() == status
    printed = capfd.readouterr()
    assert output in printed.out
    raised = "found    {'kind': 'exception'" in printed.out
    assert ("Traceback (most recent call last):" in printed.err) == raised


@pytest.mark.parametrize(
    "body", ["raise ValueError('eager')", "import os; os.abort()", "import os; os._exit(0)"]
)
@pytest.mark.usefixtures("backward_after_fork")
@pytest.mark.usefixtures("warm")
def test_a_failure_in_eager_is_undecided(
    body: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = planted_repro(tmp_path, CRASH, "return module.forward")
    text = path.read_text()
    head, _, tail = text.partition("        return (")
    path.write_text(f"{head}        {body}\n        return ({tail}")
    done = verify(path)
    assert (done.status, done.reproduced) == (125, False)
    assert "undecided: eager fails" in done.output


@pytest.mark.parametrize(
    ("broken", "status"),
    [("options = <function f at 0x7f>", 1), ("import sys; sys.exit(0)", 0), ("import no_such", 1)],
)
@pytest.mark.usefixtures("warm")
def test_a_script_that_ends_before_its_judge_has_a_result_neither_fails_nor_passes(
    broken: str, status: int, tmp_path: Path
) -> None:
    path = planted_repro(tmp_path, EXCEPTION, "raise KeyError('tanh')")
    path.write_text(path.read_text().replace("\ntry:\n", f"\n{broken}\ntry:\n", 1))
    for done in (verify(path), *verify_switched(path, ["layer.backend"], [])[:2]):
        assert done is not None
        assert (done.status, done.reproduced, done.passed) == (status, False, False)
    assert settle(path) is Settled.PASSES


@pytest.mark.usefixtures("warm")
def test_the_simplest_variant_that_fails_is_kept(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, EXCEPTION, "return module.forward")
    failing = planted_repro(tmp_path / "other", EXCEPTION, "raise KeyError('tanh')")
    failing.replace(tmp_path / AS_CALLED)
    (tmp_path / AS_CALLED).with_suffix(".safetensors").write_bytes(b"data")
    (tmp_path / IN_SCRIPT).write_text("never run")
    assert settle(path) is Settled.FAILS
    assert "raise KeyError('tanh')" in path.read_text()
    names = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert names == ["repro.log", "repro.py", "repro.safetensors"]


@pytest.mark.usefixtures("warm")
def test_if_no_variant_fails_the_plain_one_is_kept(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, EXCEPTION, "return module.forward")
    (tmp_path / IN_SCRIPT).write_text("")
    assert settle(path) is Settled.PASSES
    assert path.exists() and not (tmp_path / IN_SCRIPT).exists()
    assert (tmp_path / "repro.log").read_text().endswith("it does not fail\n")


@pytest.mark.usefixtures("warm")
def test_a_repro_that_does_not_end_is_not_reported_as_passing(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, HANG, "import time; time.sleep(1000)")
    path.write_text(path.read_text().replace("seconds=2.0", "seconds=600.0"))
    assert settle(path, seconds=1.0) is Settled.UNKNOWN
    assert (tmp_path / "repro.log").read_text() == "the repro script did not end"


def test_the_runs_of_one_repro_share_their_seconds(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text("import time\ntime.sleep(600)")
    as_is, off, only = verify_switched(path, ["fuse"], ["only:fuse"], 1.0)
    assert as_is.late and as_is.seconds >= 1.0
    assert (off, only) == (LATE, LATE), "they were not started"


@pytest.mark.parametrize(("kind", "together"), [("exception", True), ("hang", False)])
def test_two_runs_of_a_script_go_on_at_the_same_time_unless_they_are_timed(
    kind: str, together: bool, tmp_path: Path
) -> None:
    """Each run waits for the other to start."""
    path, met = tmp_path / "repro.py", tmp_path / "met"
    met.mkdir()
    path.write_text(
        f"import os, pathlib, sys, time\nEXPECTED = {{'kind': {kind!r}}}\n"
        f"met = pathlib.Path({str(met)!r})\n(met / str(os.getpid())).touch()\n"
        f"end = time.monotonic() + {20 if together else 0.2}\n"
        "while len([*met.iterdir()]) < 2 and time.monotonic() < end:\n    time.sleep(0.01)\n"
        "sys.exit(len([*met.iterdir()]))"
    )
    as_is, off, only = verify_switched(path, ["layer.backend"], [])
    assert (as_is.status, off and off.status, only) == (2 if together else 1, 2, None)


@pytest.mark.usefixtures("warm")
def test_a_repro_of_an_endless_kernel_watches_the_device_and_passes_once_kernels_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "repro.py"
    text, _ = written(captured(torch.sin, torch.ones(2)), path, Repro(ENDLESS, EAGER))
    assert "        watch=watch,\n" in text
    assert verify(path).status == 0
