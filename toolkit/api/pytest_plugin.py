"""The pytest plugin: `pytest --tcdebug` puts repro and culprit into the section of a failed test.

`--tcdebug` compares every call of a compiled graph with eager while a test runs, with its fixtures
and monkeypatches in force; `--tcdebug=bisect` also runs a failed test again, in a process of its
own, and finds the compiler step at fault inside the test.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import pytest

OPTION = "tcdebug"
MODES = ("run", "bisect")
SECONDS = 600.0
"""How long the search for the culprit of one test may take."""
SESSION = "TCDEBUG_SESSION"
"""Is set in processes of tcdebug, which look at the test themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tcdebug` and `--tcdebug-seconds`."""
    group = parser.getgroup("tcdebug", "torch.compile under test")
    group.addoption(
        "--tcdebug", nargs="?", const=MODES[0], dest=OPTION, metavar="run|bisect",
        help="Compare compiled graphs with eager; a failed test gets a repro. "
        "With =bisect, also the compiler step at fault.",
    )  # fmt: skip
    group.addoption(
        "--tcdebug-seconds", type=float, default=SECONDS, metavar="SECONDS",
        help="Time limit of the bisection of a test (600).",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests if the option is given, unless tcdebug itself runs them."""
    mode = config.getoption(OPTION)
    if mode is not None and mode not in MODES:
        mode = _without_value(config, mode)
    if mode is not None and not os.environ.get(SESSION):
        seconds = config.getoption("tcdebug_seconds")
        config.pluginmanager.register(WatchedTests(mode, seconds), "tcdebug-tests")


def _without_value(config: pytest.Config, word: str) -> str:
    """Return the default mode if a path follows `--tcdebug`: argparse takes that for its value.

    Raises UsageError.
    """
    if not Path(word.partition("::")[0]).exists():
        raise pytest.UsageError(f"--tcdebug takes {' or '.join(MODES)}, not {word!r}")
    given = config.args_source is pytest.Config.ArgsSource.ARGS
    config.args = [word, *(config.args if given else ())]
    return MODES[0]


class WatchedTests:
    """Watches the graphs of all tests, and says what failed in each.

    One watch serves all tests, since a function may be compiled in one test and called in another.
    """

    def __init__(self, mode: str, seconds: float) -> None:
        self.mode = mode
        self.seconds = seconds
        self._watch = contextlib.ExitStack()
        self._repros: Sequence[Path] = ()
        self._seen = 0
        """How many of the repros belong to tests that have ended."""

    def pytest_sessionstart(self) -> None:
        """Begin to watch, before test files are imported."""
        from tcdebug.api.watching import watching  # noqa: PLC0415 - imports torch

        self._repros = self._watch.enter_context(watching(check=True)).repros

    def pytest_sessionfinish(self) -> None:
        """End the watch."""
        self._watch.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add a section to the report of a test that failed."""
        report = yield
        if report.when != "call":
            return report
        found, self._seen = self._repros[self._seen :], len(self._repros)
        if report.failed:
            lines = _repro_lines(found)
            if self.mode == "bisect":
                lines += bisected(item, self.seconds)
            report.sections.append(("tcdebug", "\n".join(lines)))
        return report


def _repro_lines(repros: Sequence[Path]) -> list[str]:
    from tcdebug.minifier.repros.verify import Settled, settle  # noqa: PLC0415 - start-up time

    if not repros:
        return ["no compiled graph of this test failed or differed from eager"]
    lines = []
    for path in repros:
        how = settle(path)
        lines.append(f"repro    {path}: {how.value}")
        if how is Settled.FAILS:
            lines.append(f"next     tcdebug bisect {path}")
    return lines


def bisected(item: pytest.Item, seconds: float) -> list[str]:
    """Return the result of `tcdebug bisect pytest TEST`, as lines."""
    from tcdebug.minifier.investigation.report import Report  # noqa: PLC0415 - start-up time

    root = item.config.invocation_params.dir
    path, separator, name = item.nodeid.partition("::")
    node = f"{os.path.relpath(item.config.rootpath / path, root)}{separator}{name}"
    command = [
        sys.executable, "-m", "tcdebug", "bisect", "--json", "--quiet", f"--seconds={seconds:.0f}",
        "-m", "pytest", "-q", "-p", "no:cacheprovider", node,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    try:
        report = msgspec.json.decode(done.stdout, type=Report)
    except msgspec.DecodeError:
        last = done.stderr.strip().rpartition("\n")[2]
        return [f"bisect   did not finish: {last}"]
    lines = [f"bisect   {report.status}: tcdebug logs {Path(report.run_dir).name}"]
    for fault in report.faults:
        lines += [f"culprit  {c.named}" for c in fault.culprits]
        lines += [f"line     {line}" for line in fault.lines[:2]]
        lines += [f"short    {fault.short}"] * bool(fault.short)
        lines += [f"repro    {fault.repro}"] * bool(fault.repro)
    return lines + [f"note     {note}" for note in report.notes]
