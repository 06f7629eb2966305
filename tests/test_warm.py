"""The command that is started instead of Python behaves like Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tcdebug.minifier.processes.subprocess_hook import hook_installed
from tcdebug.minifier.repros.verify import verify

SHOWS = """
import os, sys
import helper
print(sys.argv, os.getcwd(), os.environ["SEEN"], __name__, __file__, sys.path[0])
print(sorted(globals()), sys.modules["__main__"].helper is helper)
print(sys.stdin.read(), file=sys.stderr)
"""
ENDS = {
    "ends": "pass",
    "exits": "import sys; sys.exit(7)",
    "says why": "raise SystemExit('no data')",
    "raises": "import atexit; atexit.register(print, 'at exit'); raise KeyError(3)",
    "aborts": "import os; os.abort()",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


def run(python: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments], cwd=folder, env={"SEEN": "1"}, input="given", capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("place", ["script.py", "inner/script.py"])
def test_a_script_sees_what_it_would_see(warm_python: str, tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(SHOWS)
    (path.parent / "helper.py").write_text("")
    warm, fresh = (run(p, tmp_path, place, "-x", "a b") for p in (warm_python, sys.executable))
    assert (warm.stdout, warm.stderr) == (fresh.stdout, fresh.stderr)
    assert fresh.returncode == warm.returncode == 0


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_a_warm_process_ends_like_a_fresh_one(warm_python: str, tmp_path: Path, text: str) -> None:
    warm, fresh = (run(p, tmp_path, "-c", text) for p in (warm_python, sys.executable))
    assert (warm.returncode, warm.stdout) == (fresh.returncode, fresh.stdout)
    assert warm.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_threads_start_processes_side_by_side(warm: None) -> None:
    def status(number: int) -> int:
        return subprocess.run([sys.executable, "-c", f"exit({number})"], check=False).returncode

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(status, range(32))) == list(range(32))


def test_torch_is_there_before_a_script_imports_it_and_not_in_another_environment(
    warm_python: str, tmp_path: Path
) -> None:
    text = "import sys; print('torch' in sys.modules)"
    assert run(warm_python, tmp_path, "-c", text).stdout == "True\n"
    other = {"SEEN": "1", "TORCH_LOGS": "dynamo"}
    done = subprocess.run([warm_python, "-c", text], env=other, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_variables_that_locate_caches_need_no_fresh_interpreter(
    warm_python: str, tmp_path: Path
) -> None:
    """torch sets the variable in a test process that compiles with Triton."""
    place = {"SEEN": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    text = "import sys; print('torch' in sys.modules)"
    done = subprocess.run([warm_python, "-c", text], env=place, capture_output=True, text=True)
    assert done.stdout == "True\n"


def test_a_repro_that_a_session_verifies_finds_torch_imported(warm: None, tmp_path: Path) -> None:
    repro = tmp_path / "repro.py"
    repro.write_text("import sys; print('torch' in sys.modules)")
    with hook_installed("off:", tmp_path / "run"):
        assert verify(repro).output == "True\n"


def test_a_module_of_tcdebug_is_run_and_no_other(warm_python: str, tmp_path: Path) -> None:
    warm, fresh = (
        run(p, tmp_path, "-m", "tcdebug", "--help") for p in (warm_python, sys.executable)
    )
    assert warm.returncode == fresh.returncode == 0
    assert (warm.stdout, warm.stderr) == (fresh.stdout, fresh.stderr)
    assert run(warm_python, tmp_path, "-m", "site", "--user-site").stdout != ""


def test_a_popen_child_gets_signals_and_is_waited_for(warm_server: Any, tmp_path: Path) -> None:
    text = "import os, sys; print(os.getppid(), os.getsid(0), 'torch' in sys.modules, flush=True)"
    command = [warm_server.path, "-c", f"{text}; input(); import time; time.sleep(1000)"]
    process = warm_server.popen(
        command, cwd=tmp_path, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == f"{os.getpid()} {process.pid} True\n"
    assert psutil.Process(process.pid).ppid() == os.getpid()
    process.stdin.write("given\n")
    process.stdin.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()


def test_abandoned_runs_are_killed(warm_python: str, tmp_path: Path) -> None:
    text = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(1000)"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([warm_python, "-c", text], cwd=tmp_path, timeout=1)
    process = int((tmp_path / "pid").read_text())
    assert run(warm_python, tmp_path, "-c", "pass").returncode == 0
    assert not Path(f"/proc/{process}").exists()
