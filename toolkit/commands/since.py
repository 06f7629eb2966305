"""tcdebug since"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.compiler.events import run_folder
from tcdebug.display.console import error, note, results, write
from tcdebug.display.tables import show_table
from tcdebug.display.text import clipped
from tcdebug.since.environments import Environments
from tcdebug.since.history import (
    SINCE,
    BadVersions,
    VersionHistory,
    history,
    in_order,
    tried,
    versions,
)
from tcdebug.since.trials import Standing, Trial, Trials

UNANSWERED, NEVER_FAILS = 1, 4
"""Exit statuses: a version could not be run; no version fails."""


def run(
    *, script: str, args: Sequence[str], torch: str, python: Sequence[str], packages: Sequence[str],
    index_url: str, seconds: float, every: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run a script with several versions of torch and report when its failure began."""
    given = dict(text.partition("=")[::2] for text in python if "=" in text)
    base = next((text for text in reversed(python) if "=" not in text), sys.executable)
    try:
        wanted = versions(torch)
        for version in given:
            versions(version)
    except BadVersions as problem:
        error("TCD019", str(problem))
        return USAGE
    environments = Environments(given, base, packages=packages, index_url=index_url, say=note)
    path = Path(script).resolve()
    trials = Trials(path, args, environments, seconds)

    def tell(version: str) -> Trial:
        done = trials.run(version)
        note(f"torch {version}: {done.standing}")
        return done

    known = sorted({*wanted, *given}, key=in_order)
    found = history(str(path), tried(tell, known, every=every))
    if run_folder.read_info(path.parent) is not None:
        (path.parent / SINCE).write_bytes(msgspec.json.encode(found))
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        _show(found, known)
    return _status(found)


def _show(found: VersionHistory, known: Sequence[str]) -> None:
    """Print the table, with the versions that the search did not need, and the verdict."""
    by_version = {trial.version: trial for trial in found.trials}
    rows = []
    for version in known:
        t = by_version.get(version)
        rows.append(
            (version, t.torch or "", t.python or "", t.standing, _short(t.detail))
            if t
            else (version, "", "", "not run", "the search did not need it")
        )
    show_table(("version", "torch", "python", "result", "detail"), rows)
    results().print(found.verdict, markup=False)


def _short(text: str) -> str:
    return clipped(" ".join(text.split()), 100)


def _status(found: VersionHistory) -> int:
    standings = {trial.standing for trial in found.trials}
    if Standing.UNKNOWN in standings:
        return UNANSWERED
    return 0 if Standing.SAME in standings else NEVER_FAILS
