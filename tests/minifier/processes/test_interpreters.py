"""Interpreters that are started before there is a script to run."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import torch
from captured import captured

from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.process import has_exited
from tcdebug.minifier.processes.tree import descendants, snapshot
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.verify import repro_environment, verify_plain, verify_switched
from tcdebug.minifier.subjects.repro_interpreters import repro_interpreters
from tcdebug.minifier.targets.backends import EMBEDDED, Backend

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "planted")
CRASH = "import ctypes\nctypes.string_at(0)\n"
RAISES = "raise ValueError('planted')\n"
HANG = "import time\nprint('waits', flush=True)\ntime.sleep(1000)\n"
LEAVES = "import os\nos.chdir('/')\nprint(os.path.abspath(__file__))\n"
VALUE = "import sys\nprint(sys.argv, __name__)\nsys.exit({status})\n"


@pytest.fixture
def waiting(request: pytest.FixtureRequest) -> Interpreters:
    interpreters = Interpreters(repro_environment(), ("torch",))
    interpreters.start()
    request.addfinalizer(interpreters.end)
    return interpreters


@pytest.mark.usefixtures("warm")
def test_each_script_runs_as_python_runs_it_in_an_empty_folder(waiting: Interpreters) -> None:
    one = waiting.ready()
    assert one is not None
    for status in (7, 0):
        assert not list(one.folder.iterdir())
        (one.folder / "script.py").write_text(VALUE.format(status=status))
        ended, output = one.run(["script.py", "--off=a.b"], 100.0)
        assert ended.returncode == status
        assert output == "['script.py', '--off=a.b'] __main__\n"
    place = Path(one.place.name)
    one.end()
    assert not place.exists()


@pytest.mark.usefixtures("warm")
def test_a_script_that_leaves_its_folder_finds_the_files_beside_it(waiting: Interpreters) -> None:
    one = waiting.ready()
    assert one is not None
    script = one.folder / "script.py"
    script.write_text(LEAVES)
    ended, output = one.run(["script.py"], 100.0)
    assert (ended.returncode, output) == (0, f"{script.resolve()}\n")


@pytest.mark.usefixtures("warm")
def test_a_crash_ends_a_script_alone_and_a_hang_the_interpreter(waiting: Interpreters) -> None:
    one = waiting.ready()
    assert one is not None
    for text, status in ((CRASH, -signal.SIGSEGV), (RAISES, 1), (HANG, None)):
        (one.folder / "script.py").write_text(text)
        ended, output = one.run(["script.py"], 100.0 if status else 0.5)
        assert ended.returncode == status
        assert ("ValueError: planted" in output) is (text is RAISES)
    assert waiting.ready() is None
    assert not descendants(one.child.pid, snapshot())


@pytest.mark.usefixtures("warm")
def test_what_an_interpreter_calls_is_done_before_its_scripts() -> None:
    interpreters = Interpreters(repro_environment(), ("sys", "faulthandler:enable"))
    interpreters.start()
    one = interpreters.ready()
    assert one is not None
    text = "import faulthandler\nprint(faulthandler.is_enabled())\n"
    for _ in range(2):
        (one.folder / "script.py").write_text(text)
        assert one.run(["script.py"], 100.0)[1] == "True\n"
    interpreters.end()


@pytest.mark.usefixtures("warm")
def test_a_repro_is_verified_by_a_waiting_interpreter(
    waiting: Interpreters, tmp_path: Path
) -> None:
    path = tmp_path / "repro.py"
    write(captured(torch.sin, torch.ones(2)), Repro(WRONG, {"backend": "inductor"}), path)
    as_is, off, only = verify_switched(path, ["lower.aten.sin.default"], [], interpreters=waiting)
    assert (as_is.status, off and off.status, only) == (0, 0, None)
    assert "it does not fail" in as_is.output


@pytest.mark.usefixtures("warm")
def test_a_repro_without_a_culprit_is_verified_by_a_waiting_interpreter(
    waiting: Interpreters, tmp_path: Path
) -> None:
    path = tmp_path / "repro.py"
    path.write_text("import sys\nprint('imported', 'torch' in sys.modules)\nsys.exit(1)\n")
    as_is, off, only = verify_switched(path, [], [], interpreters=waiting)
    assert (as_is.status, as_is.output, off, only) == (1, "imported True\n", None, None)
    again = verify_plain(path, 100.0, waiting)
    assert (again.status, again.output) == (1, "imported True\n")


def test_a_repro_that_sets_variables_for_torch_has_an_interpreter_of_its_own(
    tmp_path: Path,
) -> None:
    interpreters = Interpreters(repro_environment(), ("wave",))
    interpreters.start()
    path, reports = tmp_path / "repro.py", "import sys\nprint('wave' in sys.modules)\n"
    for text, found in (
        (reports, "True\n"),
        ("import os\nos.environ.update({})\n" + reports, "False\n"),
    ):
        path.write_text(text)
        assert verify_plain(path, 100.0, interpreters).output == found
        assert verify_switched(path, [], [], interpreters=interpreters)[0].output == found
    interpreters.end()


def test_interpreters_wait_where_the_user_has_settings_but_lack_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in environment.given():
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    found = repro_interpreters(Backend(EMBEDDED, EMBEDDED), Criteria())
    assert found is not None
    assert "OMP_NUM_THREADS" not in found.environment
    assert environment.given() == {"OMP_NUM_THREADS": "2"}


@pytest.mark.usefixtures("warm")
def test_interpreters_without_a_script_are_ended(waiting: Interpreters) -> None:
    one = waiting.ready()
    assert one is not None
    pid = one.child.pid
    one.end()
    assert not descendants(pid, snapshot())
    assert waiting.ready() is None


@pytest.mark.usefixtures("warm")
def test_an_interpreter_that_could_not_import_is_not_ready() -> None:
    interpreters = Interpreters(repro_environment(), ("no.such.module",))
    interpreters.start()
    time.sleep(0.1)
    waiting = interpreters._started[0].child.pid
    while not has_exited(waiting):
        time.sleep(0.05)
    assert interpreters.ready() is None
    interpreters.end()
