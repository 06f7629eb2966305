"""Writes a repro of a whole script that fails: a copy of the script, and a judge of its exit."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.exception_identity import (
    OF_COMPILER,
    PLAIN,
    WITH_ERROR,
    first_line,
    plain,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job
from tcdebug.minifier.repros.claims import passes_without
from tcdebug.minifier.repros.last_words import CLOSE, NUMBER, NUMBERS, OF_PROCESS, SMALL, WORDS
from tcdebug.minifier.repros.script_setup import INPUT, found_text, keeps_input

SECONDS = 600.0
"""The time that a repro gives its script if the failure is not a hang, in seconds."""

NO_UNIT = 73
"""The exit status of the script's process if a unit that is to be off does not exist."""

EXIT_STATUS = re.compile(r"exit status (\d+)")
"""The message of a script that ended with a status and no exception."""


JUDGES = re.compile(r"^PROCESSES = .*\n(?:.*\n)*?def found_script\(\):", re.MULTILINE)
"""Lines that a repro of a whole script has, and other scripts do not have."""


def judges_script(text: str) -> bool:
    """Return whether a script is a repro of a whole script, which contains its judge."""
    return JUDGES.search(text) is not None


def write_repro(
    job: Job,
    outcome: Outcome,
    units: Sequence[str],
    path: Path,
    processes: int = 1,
    folder: Path | None = None,
    working: Path | None = None,
) -> None:
    """Write a script that runs a copy of the user's script and judges how it ends.

    It runs `processes` processes one after another with the same caches. They import from `folder`
    or else from the script's folder, and run in `working` or else in the working folder of this
    process. A script beside the repro is not copied. Each reads what we read as standard input, if
    that is a file. If the outcome is a hang, a process that takes
    longer than the outcome's seconds counts as a hang.
    """
    script, wanted = Path(job.script).resolve(), job.wanted.prints
    copy = path.with_name(f"{path.stem}_script.py")
    if script.parent == path.parent.resolve():
        copy = script
    else:
        copy.write_bytes(script.read_bytes())
    template = (resources.files(__package__) / "script_repro.py.tmpl").read_text()
    text = string.Template(template).substitute(
        off=job.toggles,
        title=f"{outcome.kind.value} of a script: {outcome.signature}".replace('"', "'"),
        culprit=", ".join(units) or "not found",
        name=path.name,
        usage=passes_without(units),
        script=repr(str(script)),
        found=found_text(script, copy.name),
        args=job.args,
        folder=repr(str(folder or script.parent)),
        working=repr(str(working or Path.cwd())),
        processes=processes,
        input=repr(INPUT if keeps_input(path.parent) else ""),
        expected=_expected(outcome),
        line=repr(wanted and (wanted.text, wanted.times)),
        number=repr((NUMBER.pattern, CLOSE, SMALL)),
        process=repr(OF_PROCESS.pattern),
        patterns=repr([(pattern.pattern, other) for pattern, other in PLAIN]),
        numbers=repr([(pattern.pattern, other) for pattern, other in NUMBERS]),
        compiler=repr([(OF_COMPILER.pattern, WITH_ERROR)]),
        variables=environment.given(),
        seconds=outcome.seconds if outcome.kind is Kind.HANG and outcome.seconds else SECONDS,
        raised=SCRIPT_FAILED,
        no_unit=NO_UNIT,
    )
    path.write_text(text)


def _expected(outcome: Outcome) -> dict[str, str | int | list[str]]:
    """Return what identifies the failure in the repro."""
    if outcome.kind is not Kind.EXCEPTION:
        return {"kind": outcome.kind.value}
    if status := EXIT_STATUS.fullmatch(outcome.message):
        said = outcome.signature.partition(f"{outcome.message} | ")[2].split(WORDS)
        return {"kind": "exception", "status": int(status[1]), "says": [s for s in said if s]}
    name, _, message = outcome.message.partition(":")
    return {"kind": "exception", "class": name, "what": plain(first_line(message))}
