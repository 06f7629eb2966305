"""Virtual environments with a version of torch, made by uv or pip and kept for later calls."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

FACTS = """
import json, platform, torch
print(json.dumps([torch.__version__, platform.python_version()]))
"""
KEPT = platformdirs.user_cache_path("tcdebug") / "environments"
"""The folder of the environments, one for each version of torch and Python."""
MOST_MESSAGE = 500
UNREACHABLE = re.compile(
    r"(?:Failed to establish a new connection|Temporary failure in name resolution|"
    r"Name or service not known|No route to host|Network is unreachable|Connection refused|"
    r"Connection reset|Read timed out|error sending request|dns error|ProxyError|"
    r"CERTIFICATE_VERIFY_FAILED)[^'\"\n]*"
)
"""What installers print if they cannot reach an index. Errors about versions follow."""
CONFLICT = re.compile(r"The conflict is caused by:\n((?:[ \t]+\S.*\n?)+)")
"""What pip prints without `--quiet` if no release fits all requirements and constraints."""
ERROR = re.compile(r"^\s*(?:ERROR:|error:|╰─▶|Caused by:)\s*(.+)", re.M)
"""An error of an installer among its warnings. The first one says most."""


class NotInstalled(Exception):
    """An environment cannot be made or used. The message is the end of the installer's output."""


@dataclass(frozen=True)
class TorchPython:
    """An interpreter, its exact version of torch, and its version of Python."""

    path: Path
    torch: str
    python: str


@dataclass(frozen=True)
class Environments:
    """Finds or makes an interpreter for a version of torch."""

    given: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of the user, by version of torch."""
    base: str = sys.executable
    """The interpreter from which environments are made."""
    folder: Path = KEPT
    packages: Sequence[str] = ()
    """What is installed besides torch."""
    index_url: str = ""
    """Where packages are looked up; empty for the configuration of uv or pip."""
    say: Callable[[str], None] = lambda text: None

    def interpreter(self, version: str) -> TorchPython:
        """Return an interpreter with a version of torch such as 2.12 or 2.12.1.

        An environment that is not there yet is made. Raises NotInstalled.
        """
        if path := self.given.get(version):
            return checked(Path(path).expanduser(), version)
        folder = self.folder / "-".join([f"torch-{version}", self._tag, *sorted(self.packages)])
        python = folder / "bin" / "python"
        if python.exists():
            try:
                return checked(python, version)
            except NotInstalled:
                pass  # its installation was interrupted
        self.say(f"installing torch {version} in {folder}")
        made(folder, self.base, [requirement(version), *self.packages], self.index_url)
        return checked(python, version)

    @property
    def _tag(self) -> str:
        done = ran([self.base, "-c", "import sys; print('py%d.%d' % sys.version_info[:2])"])
        return done.strip()


def requirement(version: str) -> str:
    """Return what an installer is asked for: the newest torch of a version such as 2.12."""
    return f"torch=={version}" if version.count(".") > 1 else f"torch=={version}.*"


def made(folder: Path, base: str, wanted: Sequence[str], index_url: str = "") -> Path:
    """Make an environment with uv, or with venv and pip, and return its interpreter.

    An environment that is there is replaced. Raises NotInstalled.
    """
    python = folder / "bin" / "python"
    index = ["--index-url", index_url] if index_url else []
    shutil.rmtree(folder, ignore_errors=True)  # uv has an option for this since version 0.8 only
    if uv := shutil.which("uv"):
        ran([uv, "venv", "--quiet", "--python", base, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        ran([base, "-m", "venv", str(folder)])
        install = [str(python), "-m", "pip", "install", "--progress-bar", "off"]
    ran([*install, *index, *wanted], why_not_installed)
    return python


def why_not_installed(output: str) -> str:
    """Return why an installer failed, given its output, in which warnings may come first."""
    if unreachable := UNREACHABLE.search(output):
        return f"no package index was reached: {unreachable[0]}"
    if conflict := CONFLICT.search(output):
        return "; ".join(line.strip() for line in conflict[1].splitlines())
    errors = ERROR.findall(output)
    return errors[0] if errors else end(output)


def end(output: str) -> str:
    """Return the end of the output of a command."""
    return output.strip()[-MOST_MESSAGE:]


def checked(python: Path, version: str) -> TorchPython:
    """Return an interpreter if it has this version of torch. Raises NotInstalled."""
    found, python_version = json.loads(ran([str(python), "-c", FACTS]).splitlines()[-1])
    wanted = version.split(".")
    if found.partition("+")[0].split(".")[: len(wanted)] != wanted:
        raise NotInstalled(f"{python} has torch {found}, not {version}")
    return TorchPython(python, found, python_version)


def ran(command: Sequence[str], why: Callable[[str], str] = end) -> str:
    """Return the output of a command. Raises NotInstalled, which says `why`, if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as problem:
        raise NotInstalled(f"{command[0]}: {problem.strerror}") from None
    if done.returncode != 0:
        raise NotInstalled(why("\n".join(filter(None, (done.stdout, done.stderr)))))
    return done.stdout
