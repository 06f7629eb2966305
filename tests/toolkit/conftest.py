"""Runs the command as a user does: in its own process and its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from output_documents import document

from tcdebug.cli.main import cli

SECONDS = 280


@dataclass(frozen=True)
class Finished:
    """The result of a command."""

    status: int
    stdout: str
    stderr: str
    words: tuple[str, ...] = ()
    """The command line after `tcdebug`."""

    @property
    def json(self) -> Any:
        """Its output, parsed as JSON. It fits the published schema of the command."""
        return document(self.words, self.stdout)

    @property
    def last_line(self) -> str:
        """The last line that a person sees."""
        return (self.stdout + self.stderr).rstrip().rpartition("\n")[2]


Command = Callable[..., Finished]


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config) -> Path:
    """The cache of compiled kernels that all tests share."""
    return pytestconfig.cache.mkdir("tcdebug-kernels")


@pytest.fixture
def environment(kernels: Path) -> dict[str, str]:
    """An environment without a developer's variables, with one thread for parallel tests."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    return {**plain, "TCDEBUG_CACHE_DIR": str(kernels), "COLUMNS": "200", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def python(tmp_path: Path, environment: Mapping[str, str], warm_python: str) -> Command:
    """Run Python with these arguments in `tmp_path`. torch is imported before a script."""

    return lambda *args, **variables: finished(warm_python, tmp_path, environment, args, variables)


@pytest.fixture
def tcdebug(python: Command) -> Command:
    """Run `tcdebug` with these arguments in `tmp_path`.

    Its processes find torch imported, as scripts do.
    """
    return lambda *args, **variables: python("-m", "tcdebug", *args, **variables)


@pytest.fixture
def cold(tmp_path: Path, environment: Mapping[str, str]) -> Command:
    """Run Python with these arguments in `tmp_path` as a user does, with nothing imported."""
    return lambda *args, **variables: finished(
        sys.executable, tmp_path, environment, args, variables
    )


def finished(
    python: str,
    folder: Path,
    environment: Mapping[str, str],
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
) -> Finished:
    """Run an interpreter to its end."""
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    words = arguments[2:] if arguments[:2] == ("-m", "tcdebug") else ()
    return Finished(done.returncode, done.stdout, done.stderr, words)


@pytest.fixture
def inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run `tcdebug` in this process, which has torch. For commands that run nothing."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Finished:
        with pytest.raises(SystemExit) as end:
            cli.main([*args])
        told = capsys.readouterr()
        return Finished(int(end.value.code or 0), told.out, told.err, args)

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a user's script and return its name. Every script begins with `import torch`."""

    def write(text: str) -> str:
        (tmp_path / "script.py").write_text("import torch\n" + text)
        return "script.py"

    return write
