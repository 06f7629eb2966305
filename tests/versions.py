"""Runs the tests with other versions of torch.

    python tests/versions.py 2.11 2.12 2.13 2.14 2.15
    python tests/versions.py 2.12 --only tests/compiler/test_seams.py --planted softplus

Creates a virtual environment for each version, or reuses that of an earlier call: torch of that
version, and this checkout with its dev extra. Runs the default tests, or those of --only, and the
bugs planted in inductor. Prints a row of a table when a suite ends, and all failures at the end;
the exit status is 1 if there are any.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import platformdirs

from tcdebug.since.environments import NotInstalled, made, requirement

ROOT = Path(__file__).resolve().parents[1]
PLANTED = "tests/quality/test_planted_inductor.py"

FACTS = """
import json, platform, pytest, torch, tcdebug
print(json.dumps([torch.__version__, platform.python_version(), tcdebug.__file__]))
"""


@dataclass(frozen=True)
class Shortfall:
    """A test that failed, or a step that did not get to the tests."""

    what: str
    how: str


@dataclass(frozen=True)
class SuiteResult:
    """The result of one call of pytest."""

    name: str
    passed: int
    skipped: int
    shortfalls: tuple[Shortfall, ...]

    def row(self, torch: str, python: str, seconds: float) -> str:
        """A row of the table of results."""
        counts = f"{self.passed} | {self.skipped} | {len(self.shortfalls)}"
        return f"| {torch} | {python} | {self.name} | {counts} | {seconds:.0f} |"


def facts(python: Path, version: str) -> tuple[str, str] | None:
    """The versions of torch and Python in an environment; None if the tests cannot run in it."""
    done = subprocess.run([python, "-c", FACTS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    torch, python_version, package = json.loads(done.stdout.splitlines()[-1])
    wanted = version.split(".")
    fits = torch.split("+")[0].split(".")[: len(wanted)] == wanted
    ours = Path(package).resolve() == ROOT / "toolkit" / "__init__.py"
    return (torch, python_version) if fits and ours else None


def environment(folder: Path, version: str, interpreter: str) -> Path:
    """The interpreter of an environment with a version of torch. Raises NotInstalled."""
    python = folder / "bin" / "python"
    if python.exists() and facts(python, version):
        return python
    made(folder, interpreter, [requirement(version), "-e", f"{ROOT}[dev]"])
    if facts(python, version) is None:
        raise NotInstalled(f"torch {version} and this checkout are not in {folder}")
    return python


def run(python: Path, name: str, arguments: Sequence[str], cache: Path) -> SuiteResult:
    """Run pytest in an environment and read its results."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.xml"
        done = subprocess.run(
            [python, "-m", "pytest", "-q", f"--junitxml={path}", "-o", f"cache_dir={cache}",
             *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not path.exists():
            return SuiteResult(name, 0, 0, (Shortfall("pytest", done.stdout[-500:]),))
        return read(name, path, done.returncode)


def read(name: str, path: Path, status: int) -> SuiteResult:
    """The results that pytest wrote as XML."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    short = tuple(_shortfalls(cases))
    if status != 0 and not short:
        short = (Shortfall("pytest", f"exit status {status}, without a failing test"),)
    failed = sum(1 for case in cases if _failure(case) is not None)
    return SuiteResult(name, len(cases) - skipped - failed, skipped, short)


def _failure(case: ElementTree.Element) -> ElementTree.Element | None:
    found = case.find("failure")
    return found if found is not None else case.find("error")


def _shortfalls(cases: Sequence[ElementTree.Element]) -> Iterator[Shortfall]:
    for case in cases:
        failure = _failure(case)
        if failure is not None:
            message = failure.get("message", "").strip() or "failed"
            yield Shortfall(f"{case.get('classname')}::{case.get('name')}", message)


def suites(only: Sequence[str], planted: str) -> Iterator[tuple[str, list[str]]]:
    """The suites for every version: a name, and the arguments of pytest."""
    yield ("chosen", [*only]) if only else ("default", [f"--deselect={PLANTED}"])
    chosen = ["-k", planted] if planted else []
    yield "planted", [PLANTED, "-m", "slow or not slow", *chosen]


def cell(text: str) -> str:
    """A text for a cell of a table."""
    return text.splitlines()[0][:160].replace("|", "\\|") if text else ""


def main() -> int:
    """Run everything and print the tables; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="of torch: 2.12 or 2.12.1")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="tests to run")
    parser.add_argument("--planted", default="", metavar="WORDS", help="pytest -k of planted bugs")
    parser.add_argument("-n", "--processes", type=int, default=2, help="that run tests")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to build with")
    parser.add_argument(
        "--folder",
        type=Path,
        default=platformdirs.user_cache_path("tcdebug") / "versions",
        help="where the environments are kept",
    )
    args = parser.parse_args()
    short: list[str] = []
    print("| torch | Python | tests | passed | skipped | fell short | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for version in args.versions:
        folder: Path = args.folder / version
        try:
            python = environment(folder, version, args.python)
        except NotInstalled as problem:
            print(f"| {version} | | not installed | 0 | 0 | 1 | |", flush=True)
            short.append(f"| {version} | installation | {cell(str(problem))} |")
            continue
        torch, python_version = facts(python, version) or (version, "")
        for name, arguments in suites(args.only, args.planted):
            began = time.monotonic()
            done = run(python, name, ["-n", str(args.processes), *arguments], folder / "cache")
            print(done.row(torch, python_version, time.monotonic() - began), flush=True)
            short += [f"| {torch} | {s.what} | {cell(s.how)} |" for s in done.shortfalls]
    if short:
        print("\n| torch | what fell short | how |\n|---|---|---|", *short, sep="\n")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
