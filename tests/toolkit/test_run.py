"""tcdebug run, watch() and TCDEBUG_REPRO=1: every failure leaves a repro."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

import tcdebug

Command = Callable[..., Any]
Script = Callable[[str], str]

BROKEN = """
import ctypes
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
def broken(site, x):
    {how}
REGISTRY.lowerings[torch.ops.aten.sin.default] = broken
linear = torch.nn.Linear(4, 4)
f = torch.compile(lambda x: torch.sin(linear(x)).sum(), backend="tcdebug")
"""
RAISES = BROKEN.format(how='raise ValueError("planted")')
WRONG = BROKEN.format(how="return right(site, right(site, x))")
CRASHES = BROKEN.format(how="ctypes.string_at(0)")
CALL = "f(torch.ones(2, 4))\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "flags", "status"),
    [(RAISES, [], 1), (WRONG, ["--check"], 1), (CRASHES, [], 139)],
    ids=["exception", "wrong", "segfault"],
)
def test_a_failure_leaves_a_repro_that_fails_and_its_path_is_printed_last(
    tcdebug: Command, python: Command, script: Script, text: str, flags: list[str], status: int
) -> None:
    done = tcdebug("run", *flags, "-o", "failures.txt", script(text + CALL))
    assert done.status == status
    path = done.last_line.removeprefix("tcdebug: repro ")
    assert path.endswith("graphs/0/repro.py")
    assert "tcdebug: checking the repro in a fresh process, for 120 s at most" in done.stderr
    assert ("1 call of 1 graph compared with eager: 1 is wrong" in done.stderr) == bool(flags)
    assert python(path).status == 1
    summary, failure = Path(path).parents[4].joinpath("failures.txt").read_text().splitlines()
    assert summary == f"exit status {status}; failing graphs: 1; missing guards: 0"
    assert failure.endswith("graphs/0/repro.py")


def test_an_exception_in_backward_leaves_a_repro(
    tcdebug: Command, python: Command, script: Script
) -> None:
    """Backward alone has a kernel, for which there is no C++ compiler."""
    text = """
f = torch.compile(lambda x: x.t() @ x, backend="tcdebug", options={"compiler": "/no/such"})
f(torch.ones(3, 3, requires_grad=True)).sum().backward()
"""
    done = tcdebug("run", script(text))
    assert done.status == 1
    assert ", in backward\n" in done.stderr
    assert python(done.last_line.removeprefix("tcdebug: repro ")).status == 1


def test_a_script_that_does_not_fail_runs_as_python_would_run_it(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    text = """
import sys
print(__name__, sys.argv, sys.path[0].endswith("sub"), input())
f = torch.compile(lambda x: x.sin(), backend="tcdebug")
x = torch.ones(3, requires_grad=True)
f(x).sum().backward()
sys.exit(7)
"""
    (tmp_path / "sub").mkdir()
    (tmp_path / script(text)).rename(tmp_path / "sub" / "script.py")
    done = tcdebug("run", "--check", "sub/script.py", "-x", "--flag")
    assert done.status == 1  # input() finds nothing more to read
    assert "EOFError" in done.stderr
    (tmp_path / "sub" / "script.py").write_text("import torch\n" + text.replace(", input()", ""))
    done = tcdebug("run", "--check", "sub/script.py", "-x", "--flag")
    assert done.stdout == "__main__ ['sub/script.py', '-x', '--flag'] True\n"
    assert "tcdebug: 1 call of 1 graph compared with eager: none is wrong" in done.stderr
    assert done.status == 7
    assert list(tmp_path.glob(".tcdebug/*/graphs/*/repro.py")) == []


def test_units_switched_off_are_off(tcdebug: Command, script: Script) -> None:
    done = tcdebug("run", "--off", "lower.aten.sin.default", script(RAISES + CALL))
    assert done.status == 0, done.stderr


def test_watch_leaves_a_repro_of_any_backend(
    python: Command, script: Script, tmp_path: Path
) -> None:
    text = """
import tcdebug
def refuses(module, inputs):
    raise NotImplementedError("not on this machine")
with tcdebug.watch() as watcher:
    good = torch.compile(torch.tanh, backend="aot_eager")(torch.ones(3))
    try:
        torch.compile(torch.tanh, backend=refuses)(torch.ones(3))
    except Exception:
        print(len(watcher.repros))
"""
    done = python(script(text))
    assert done.stdout == "1\n"
    assert done.status == 0
    path = done.last_line.removeprefix("tcdebug: repro ")
    assert python(path).status == 1


NO_COMPILER = """
f = torch.compile(torch.sin, backend="tcdebug", options={"compiler": "/no/such"})
"""
INDUCTOR = """
from torch._inductor.lowering import lowerings
def broken(x):
    raise ValueError("planted")
lowerings[torch.ops.aten.sin.default] = broken
f = torch.compile(torch.sin)
"""
STARTS_ANOTHER = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "script.py"]).returncode)
"""


@pytest.mark.parametrize(
    ("text", "started"),
    [
        pytest.param(NO_COMPILER, "parent.py", marks=pytest.mark.slow),
        pytest.param(INDUCTOR, "script.py", marks=pytest.mark.slow),  # its repro runs three times
    ],
    ids=["a child process", "inductor"],
)
def test_the_variable_alone_makes_a_program_leave_repros(
    python: Command, script: Script, tmp_path: Path, text: str, started: str
) -> None:
    (tmp_path / "parent.py").write_text(STARTS_ANOTHER)
    script(text + CALL)
    done = python(started, TCDEBUG_REPRO="1")
    assert done.status == 1
    assert "Error: " in done.stderr
    assert python(done.last_line.removeprefix("tcdebug: repro ")).status == 1


def test_importing_torch_loads_one_module_even_in_a_script_that_hides_tcdebug(
    cold: Command, tmp_path: Path
) -> None:
    script = tmp_path / "tcdebug.py"
    script.write_text(
        "import sys, torch; print(*(m for m in sys.modules if m.startswith('tcdebug_')))"
    )
    done = cold("tcdebug.py", TCDEBUG_REPRO="0")
    assert (done.stdout, done.stderr) == ("tcdebug_autoload\n", "")


def test_the_variable_says_if_a_script_hides_tcdebug_and_does_not_run_it(
    cold: Command, tmp_path: Path
) -> None:
    (tmp_path / "tcdebug.py").write_text("print('run')\nimport tcdebug_autoload as it; it.attach()")
    done = cold("tcdebug.py", TCDEBUG_REPRO="1")
    assert done.stdout == "run\n"
    assert f"TCDEBUG_REPRO has no effect: 'import tcdebug' finds {tmp_path}" in done.stderr


@pytest.mark.slow
def test_a_healthy_program_behaves_the_same_with_the_variable_set(
    python: Command, script: Script, tmp_path: Path
) -> None:
    text = "print(torch.compile(torch.tanh, backend='aot_eager')(torch.zeros(1)).item())\nexit(3)\n"
    done = python(script(text), TCDEBUG_REPRO="1")
    assert (done.status, done.stdout) == (3, "0.0\n")
    assert done.stderr.count("\n") == 1 and "watching torch.compile" in done.stderr
    assert list(tmp_path.glob(".tcdebug/*/graphs/*/repro.py")) == []


def test_a_public_name_stays_what_it_is_when_its_module_is_imported() -> None:
    for name in tcdebug.EXPORTS:
        first = getattr(tcdebug, name)
        assert getattr(tcdebug, name) is first
        assert not isinstance(first, ModuleType)


@pytest.mark.slow
def test_a_crash_in_a_forked_worker_leaves_a_repro(
    tcdebug: Command, python: Command, script: Script
) -> None:
    text = """
import os
def aborts(module, inputs):
    os.abort()
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.compile(torch.sin, backend=aborts)(torch.ones(3))
for _ in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
"""
    done = tcdebug("run", script(text))
    assert done.status == 1
    path = done.last_line.removeprefix("tcdebug: repro ")
    assert "/graphs/0-" in path
    assert "def forward(self" in Path(path).read_text()


@pytest.mark.slow
def test_with_every_call_the_repro_has_the_inputs_of_the_call_that_crashed(
    tcdebug: Command, python: Command, script: Script
) -> None:
    text = """
import os
def aborts_at_five(module, inputs):
    def call(x):
        if x[0] == 5:
            os.abort()
        return module(x)
    return call
compiled = torch.compile(lambda x: x.sin(), backend=aborts_at_five)
for number in range(9):
    compiled(torch.full((3,), float(number)))
"""
    done = tcdebug("run", "--every-call", script(text))
    assert done.status == 134
    result = python(done.last_line.removeprefix("tcdebug: repro "))
    assert (result.status, result.last_line) == (1, "it fails as expected")


DEAF = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
def hangs(module, inputs):
    print("compiling", flush=True)
    time.sleep(1000)
torch.compile(torch.sin, backend=hangs)(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("text", "signals", "expected"),
    [
        (DEAF.replace("signal.signal", "(lambda *_: None)"), [signal.SIGTERM], "{'kind': 'hang'}"),
        (DEAF, [signal.SIGINT, signal.SIGINT], "{'kind': ['crash', 'hang']}"),
    ],
    ids=["one SIGTERM", "a second Ctrl-C kills"],
)
def test_a_hang_that_is_interrupted_leaves_a_repro(
    script: Script,
    tmp_path: Path,
    environment: dict[str, str],
    warm_server: Any,
    text: str,
    signals: list[signal.Signals],
    expected: str,
) -> None:
    process = warm_server.popen(
        [warm_server.path, "-m", "tcdebug", "run", script(text)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling\n"
    assert process.stderr is not None
    first, *second = signals
    process.send_signal(first)
    stderr = ""
    while second and "Ctrl-C again kills it" not in stderr:
        stderr += (line := process.stderr.readline())
        assert line, stderr
    for number in second:
        process.send_signal(number)
    stderr += process.communicate(timeout=60)[1]
    assert process.returncode == 130, stderr
    path = Path(stderr.splitlines()[-1].removeprefix("tcdebug: repro "))
    assert f"EXPECTED = {expected}" in path.read_text()


@pytest.mark.parametrize("command", ["run", "bisect"])
def test_a_script_ends_with_the_command_whatever_ended_that(
    command: str, script: Script, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """It also has a collector of garbage, which does not search what the session has imported."""
    name = script(
        """
import gc, os, time
assert gc.isenabled() and gc.get_freeze_count() > 200_000, gc.get_freeze_count()
open("pid", "w").write(f"{os.getpid()}\\n")
time.sleep(600)
"""
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tcdebug", command, name], cwd=tmp_path, env=environment
    )
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while _runs(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(pid.read_text()))


def _runs(pid: int) -> bool:
    """Whether a process is running. A zombie, for which nobody waits, has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
