"""Runs a script and reads from its events how it was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tcdebug.minifier.processes.job import Job, check_backend, start_in_foreground
from tcdebug.reading.explanation import Explanation, explain
from tcdebug.reading.run_dir import find
from tcdebug.supervision.foreground import status_of
from tcdebug.supervision.supervisor import Supervisor, begin

SCRIPT_LOG = "script.log"
FAILED, NOTHING, INTERRUPTED = 1, 4, 130


@dataclass(frozen=True)
class ExplainedScript:
    """How a script ended, and how it was compiled."""

    ended: int
    """The exit status of the script; negative for a signal, 130 after Ctrl-C."""
    found: Explanation
    log: Path
    """The output of the script."""

    @property
    def exit_status(self) -> int:
        """The exit status of `tcdebug explain`."""
        if self.ended:
            return INTERRUPTED if self.ended == INTERRUPTED else FAILED
        return 0 if self.found.frames else NOTHING


def begin_explaining(script: str, args: Sequence[str], backend: str | None) -> Supervisor:
    """Create the run in which a script is explained."""
    return begin("explain", Job("explain", script, list(args), "", backend), quiet=True, fresh=True)


def explained(supervisor: Supervisor) -> ExplainedScript:
    """Run the script, and end its run. After Ctrl-C, the part before it is explained.

    Raises UnknownBackend.
    """
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder)}
    status = status_of(
        start_in_foreground(supervisor.job, environment, folder / SCRIPT_LOG), supervisor.job
    )
    check_backend(supervisor.job)
    run = find(str(folder))
    ended = INTERRUPTED if status is None else status
    result = ExplainedScript(ended, explain(run, run.events()), folder / SCRIPT_LOG)
    healthy = not (ended or result.found.failures)
    supervisor.finish(result.exit_status, healthy=healthy)
    return result
