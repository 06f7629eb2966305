"""tcdebug repro"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.cli.script_argument import script_hint
from tcdebug.cli.termination import INTERRUPTED
from tcdebug.compiler.events.search_events import ReproVerify
from tcdebug.display.console import error, note, write
from tcdebug.display.report import show_written
from tcdebug.minifier.processes.job import Job, start_in_foreground
from tcdebug.minifier.repros.as_test import is_repro, write_standalone, write_test
from tcdebug.minifier.repros.verify import verify
from tcdebug.reading.run_dir import NoRun, Run, find, runs
from tcdebug.supervision.eager_failures import print_script_problem
from tcdebug.supervision.foreground import backend_missing, refused, status_of
from tcdebug.supervision.supervisor import Supervisor, begin

NOT_PASSING, NOTHING, SCRIPT_RAISED = 1, 4, 5


def run(
    *,
    source: str,
    args: Sequence[str],
    graph: int | None,
    backend: str | None,
    output: Path | None,
    as_test: bool,
    standalone: bool,
) -> int:
    """Write repros of a script, or convert a repro. Return the exit status."""
    path = Path(source)
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        error(
            "TCD004",
            f"cannot create {output}: {problem.strerror}",
            "give -o a writable folder",
        )
        return USAGE
    converts = as_test or standalone
    if path.is_file() and not (converts and is_repro(path)):
        job = Job("capture", source, list(args), "", backend, graph=graph, standalone=standalone)
        return _capture(job, output, as_test=as_test)
    try:
        script = path if path.is_file() else _repro_in(source, graph)
    except NoRun as problem:
        error("TCD008", f"no script {source!r}; {problem}", script_hint(source))
        return USAGE
    if args or backend or not converts:
        options = "--as-test, --standalone, --graph (of a run) and -o"
        what = f"{script} is a repro; it takes only {options}"
        error("TCD008", what, f"tcdebug repro --as-test {source}")
        return USAGE
    convert = write_test if as_test else write_standalone
    write(f"{convert(script, output or script.parent)}\n")
    return 0


def _repro_in(name: str, graph: int | None) -> Path:
    """Return the repro of a run; for `latest`, of the newest run that has one. Raises NoRun."""
    newest = find(name)
    for run in runs() if name == "latest" else []:
        with contextlib.suppress(NoRun):
            return _repro_of(run, graph)
    return _repro_of(newest, graph)


def _repro_of(found: Run, graph: int | None) -> Path:
    """Return the repro of a run, preferably the bisected one, or the repro of one graph."""
    number = "*" if graph is None else graph
    names = [f"graphs/{number}/repro.py", f"graph_{number}.py"]
    for pattern in ["repro.py", *names] if graph is None else names:
        for path in sorted(found.path.glob(pattern)):
            return path
    raise NoRun(f"{found.path.name} has no repro script{'' if graph is None else f' of {graph}'}")


def _capture(job: Job, output: Path | None, *, as_test: bool) -> int:
    """Run the script, and each repro that it leaves."""
    if print_script_problem(job.script):
        return SCRIPT_RAISED
    supervisor = begin("repro", job, quiet=True, fresh=True)
    folder = (output or supervisor.folder).resolve()
    job = msgspec.structs.replace(supervisor.job, output=str(folder))
    child = start_in_foreground(job, {"TCDEBUG_RUN_DIR": str(supervisor.folder)})
    status = status_of(child, job)
    if missing := backend_missing(supervisor):
        return refused(supervisor, missing)
    if status is None:
        status = INTERRUPTED
    paths = _written(supervisor, job.script, job.graph)
    passing = dict.fromkeys(paths, True)
    try:
        if status != INTERRUPTED:
            passing = _judged(supervisor, paths)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if as_test:
        passing = {_moved(path): passes for path, passes in passing.items()}
    show_written(passing)
    ending = _exit_status(status, passing)
    supervisor.finish(ending, healthy=ending == NOTHING)
    return ending


def _written(supervisor: Supervisor, script: str, graph: int | None) -> list[Path]:
    """Return the scripts of the run. Prints an error if there are none."""
    records = find(str(supervisor.folder)).events()
    for record in records:
        if record["event"] == "fallback":
            note(f"{record['data']['what']}: {record['data']['reason']}")
    paths = [Path(r["data"]["path"]) for r in records if r["event"] == "repro.write"]
    if not paths:
        seen = sum(r["event"] == "graph.recorded" for r in records)
        wanted = "" if graph is None else f" graph {graph} (counted from 0) of"
        what = f"torch.compile captured {seen or 'no'} graph{'s' * (seen != 1)}"
        error(
            "TCD014",
            f"no repro of{wanted} {script} was written: {what}",
            "run it with tcdebug run to see its output",
        )
    return paths


def _judged(supervisor: Supervisor, paths: Sequence[Path]) -> dict[Path, bool]:
    """Run each script in a fresh process and a clean folder; whether it passes."""
    found: dict[Path, bool] = {}
    for path in paths:
        result = verify(path)
        found[path] = result.passed
        event = ReproVerify(str(path), found[path], result.status, round(result.seconds, 3))
        supervisor.log.emit(event)
    return found


def _moved(script: Path) -> Path:
    """Replace a script by its test."""
    test = write_test(script, script.parent)
    script.unlink()
    script.with_suffix(".safetensors").unlink(missing_ok=True)
    return test


def _exit_status(status: int, passing: dict[Path, bool]) -> int:
    if status == INTERRUPTED:
        return INTERRUPTED
    if status != 0:
        return SCRIPT_RAISED
    if not passing:
        return NOTHING
    return 0 if all(passing.values()) else NOT_PASSING
