"""For all tests: compiles without timing of guards, and an interpreter that has torch."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WARM = Path(__file__).parent / "warm"
sys.path.insert(0, str(WARM))
sys.path.insert(0, str(Path(__file__).parent / "support"))
from huge_pages import Forked  # noqa: E402 # it is beside the server
from property_settings import EXPLORING, MORE  # noqa: E402 # it is in the support folder
from warm_client import READ_AT_IMPORT  # noqa: E402 # it is beside the server
from warm_popen import warm_popen  # noqa: E402

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",  # a process that has initialised a device cannot be forked
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
"""Settings that torch reads at import, as repro scripts have them."""


DEVICE = Path(__file__).parent / "device"
"""The tests that need a GPU."""
SAMPLED = pytest.StashKey[Counter[str]]()
"""How many parameters of each sampled test have been collected."""
OF, TAKEN = 7, (0, 3)
"""Of seven parameters, those at these places are run. Seven, so that each dtype has its turn."""


def import_torch_with_waiting_threads() -> None:
    """Import torch so that threads of OpenMP sleep while they wait, in this process only.

    By default they spin. Two test processes with two threads each then take twice the CPU time on
    two cores.
    """
    assert "torch" not in sys.modules, "OpenMP reads its settings when torch is imported"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", "passive")
        import torch  # noqa: F401, PLC0415 # after the setting


def pytest_configure(config: pytest.Config) -> None:
    """Keep kernels between runs, and collect garbage rarely: compiles make a million objects.

    All tests share one cache, apart from the user's. That of inductor lies where tcdebug itself has
    it. Bytecode is kept even where the environment forbids it. Otherwise each process that imports
    a session compiles the source of tcdebug again, which takes 0.7 CPU-seconds.

    A developer's CXX, which conda sets, would be a changed setting of inductor in every test.
    Inductor compiles on one thread, because forked children of a test would wait for its others.
    Only the tests in `device` see a GPU, and only if no others run.
    """
    hands_out_tests = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not hands_out_tests:
        import_torch_with_waiting_threads()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("CXX", None)
    if not all(Path(argument).resolve().is_relative_to(DEVICE) for argument in config.args):
        os.environ["CUDA_VISIBLE_DEVICES"] = SETTINGS["CUDA_VISIBLE_DEVICES"]
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = SETTINGS["TORCHINDUCTOR_COMPILE_THREADS"]
    sys.dont_write_bytecode = False
    kernels = config.cache.mkdir("tcdebug-kernels")
    os.environ["TCDEBUG_CACHE_DIR"] = str(kernels)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(kernels / "inductor")
    gc.set_threshold(100_000, 50, 50)
    config.pluginmanager.register(Collecting())
    os.register_at_fork(before=Forked().before)
    config.add_cleanup(gc.unfreeze)  # else nanobind reports its types as leaked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests of whole commands first, and allow properties with more examples more time.

    Such tests take longest. If they come last, one of two processes ends long before the other.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/toolkit/", "tests/quality/")))
    if EXPLORING:
        limit = float(config.getini("timeout")) * MORE
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(limit))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark most parameters of a `sampled` test as slow."""
    if item.get_closest_marker("sampled") is None:
        return
    seen = item.config.stash.setdefault(SAMPLED, Counter())
    test = item.nodeid.partition("[")[0]
    if seen[test] % OF not in TAKEN:
        item.add_marker(pytest.mark.slow)
    seen[test] += 1


class Collecting:
    """Collects garbage after every 25th test, among the objects made since the last time.

    Dynamo's own collections move what a test leaves into the oldest generation, which the
    thresholds hardly ever reach. Each graph is a class below `torch.nn.Module`. Each trace patches
    that class, which takes longer the more such classes there are: with 2500 more of them, a
    compile takes 59 ms instead of 53.
    """

    OFTEN = 25

    def __init__(self) -> None:
        self.tests = 0

    def pytest_runtest_logfinish(self) -> None:
        self.tests += 1
        if self.tests % self.OFTEN == 0:
            gc.collect()
            gc.freeze()  # what is alive is not searched again


def pytest_sessionfinish() -> None:
    """Keep pytest from searching all objects of torch for garbage, five times, before it ends."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """Enable Ctrl-C, which a shell disables for background jobs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def untimed_guards() -> None:
    """Skip Dynamo's timing of guards, which flushes the CPU's caches: 20 ms per compile."""
    from torch._dynamo import guards  # noqa: PLC0415 # collection stays fast

    given: Any = guards
    given.profile_guard_manager = lambda *_: 0.0


@pytest.fixture(scope="session", autouse=True)
def believed_instructions() -> None:
    """Skip inductor's check that g++ can use the CPU's vector instructions: 10 CPU-seconds.

    It compiles six programs for each new cache. An old g++ fails at the first kernel instead.
    """
    from torch._inductor import cpu_vec_isa  # noqa: PLC0415 # collection stays fast

    given: Any = cpu_vec_isa.VecISA
    given.check_build = lambda *_: True


@pytest.fixture(scope="session", autouse=True)
def no_random_state() -> None:
    """Skip AOTAutograd's state of CUDA's random numbers, which no test uses: 7 % of a compile."""
    from torch._decomp import decompositions_for_rng  # noqa: PLC0415 # collection stays fast

    given: Any = decompositions_for_rng.PhiloxStateTracker
    given.reset = lambda: None


@dataclass(frozen=True)
class WarmPython:
    """What to start instead of Python, if the import of torch itself is not tested."""

    path: str
    """A command. Its program is a child of the server."""
    popen: type[subprocess.Popen[Any]]
    """Starts the command. Its program is a child of the calling process."""


@pytest.fixture(scope="session")
def warm_server() -> Iterator[WarmPython]:
    """An interpreter that has imported torch and is forked."""
    environment = {**os.environ, **SETTINGS}
    settings = {k: v for k, v in environment.items() if k.startswith(READ_AT_IMPORT)}
    with tempfile.TemporaryDirectory(prefix="tcdebug-warm-") as folder:
        address, client = f"{folder}/socket", Path(folder, "python")
        text = (WARM / "warm_client.py").read_text()
        client.write_text(f"#!{sys.executable} -IS\n{text}\nmain({address!r}, {settings!r})\n")
        client.chmod(0o755)
        command = [sys.executable, str(WARM / "warm_server.py"), address, str(client)]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            yield WarmPython(str(client), warm_popen(str(client), address, settings))
            server.kill()  # processes that a test has forked may hold its input open


@pytest.fixture(scope="session")
def warm_python(warm_server: WarmPython) -> str:
    """A command that behaves like Python without importing torch."""
    return warm_server.path


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, warm_server: WarmPython) -> None:
    """Make Python processes that this one starts, including sessions, find torch imported."""
    monkeypatch.setattr(sys, "executable", warm_server.path)
    monkeypatch.setattr(subprocess, "Popen", warm_server.popen)
