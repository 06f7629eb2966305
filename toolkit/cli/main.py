"""Subcommands and flags. A command module is imported when the command is called."""

from __future__ import annotations

import errno
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from tcdebug import __version__
from tcdebug.cli.fuzz import fuzz
from tcdebug.cli.logs import logs
from tcdebug.cli.options import (
    ARGS,
    BACKEND,
    CHECK_RUN,
    CODE,
    CONTEXT,
    EVERY_CALL,
    FAILURES_FILE,
    FAILURES_FORMAT,
    JSON,
    JSON_FORMAT,
    MODULE,
    OFF,
    OUTPUT_FORMAT,
    PASS_ON,
    PROFILE,
    QUIET,
    RUN,
    SCRIPT,
    STANDALONE,
    STEPS,
    USAGE,
    RunCommand,
    SuggestingGroup,
    call,
    complete_run,
    options,
)
from tcdebug.cli.program import ProgramCommand
from tcdebug.cli.search_options import SEARCH
from tcdebug.cli.since import since
from tcdebug.cli.values import values
from tcdebug.compiler.configuration.options import BadOption
from tcdebug.compiler.gate.toggles import BadToggle

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that is full or cannot be written."""
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.group(cls=SuggestingGroup, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="tcdebug")
def cli() -> None:
    """Find the compiler step that makes torch.compile fail, and write a small repro.

    Start with: tcdebug bisect script.py
    """


@cli.command(cls=ProgramCommand, context_settings=PASS_ON)
@options(*SEARCH, MODULE, CODE)
@click.option("--minify/--no-minify", default=True, help="Also minimise the graph.")
@SCRIPT
@ARGS
def bisect(**arguments: Any) -> None:
    """Find the compiler step that makes SCRIPT fail.

    Also writes a repro. SCRIPT runs unchanged, with ARGS. Instead of SCRIPT, give -m MODULE,
    -c CODE, or an installed command such as pytest.

    Exit status: 0 culprit found and confirmed, 1 failure without a confirmed culprit, 2 usage,
    3 internal error, 4 nothing fails, 5 fails in eager, 6 budget used up, 130 Ctrl-C (the same
    command continues from there).
    """
    call("bisect", **arguments)


@cli.command(cls=ProgramCommand, context_settings=PASS_ON)
@options(*SEARCH, MODULE, CODE)
@SCRIPT
@ARGS
def minify(**arguments: Any) -> None:
    """Minimise the failing graph of SCRIPT.

    Does not search for the culprit. SCRIPT may be a repro script. Exit status: 0 minimised and
    verified, 1 the repro does not fail alone, otherwise as bisect.
    """
    call("minify", **arguments)


@cli.command(cls=RunCommand, context_settings=PASS_ON)
@options(BACKEND, OFF, CHECK_RUN, EVERY_CALL, FAILURES_FILE, FAILURES_FORMAT)
@options(PROFILE, STEPS, JSON, QUIET, MODULE, CODE)
@SCRIPT
@ARGS
def run(**arguments: Any) -> None:
    """Run SCRIPT and write repros of its failures.

    SCRIPT runs with ARGS. Each compiled graph that fails leaves a repro. Instead of SCRIPT, give
    -m MODULE, -c CODE, or an installed command such as pytest.

    With --profile, shows what the lines and kernels cost instead, and writes a trace for Perfetto.

    Exit status: that of the script; 1 when --check found a wrong result or a missing guard;
    4 when --profile found no compiled graph; 128 + n when the process died of signal n.
    """
    call("run", **arguments)


@cli.command(cls=ProgramCommand, context_settings=PASS_ON)
@BACKEND
@OUTPUT_FORMAT
@JSON_FORMAT
@options(MODULE, CODE)
@click.argument("script", metavar="SCRIPT|CODE")
@ARGS
def explain(**arguments: Any) -> None:
    """Explain how SCRIPT is compiled, or an error CODE.

    \b
    tcdebug explain script.py    run a script and show on one screen how it was compiled
    tcdebug explain TCD012       explain an error of tcdebug and what to do about it

    Shows graphs, graph breaks with their lines and remedies, recompiles with the value that caused
    them, constants, calls left to ATen, and the cost of each. Exit status: 0 explained, 1 SCRIPT
    failed, 2 usage, or no such script or code, 3 internal error, 4 SCRIPT compiles nothing,
    130 Ctrl-C.
    """
    call("explain", **arguments)


@cli.command(cls=ProgramCommand, context_settings=PASS_ON)
@click.option("--graph", type=click.IntRange(0), help="Only this graph of SCRIPT, counted from 0.")
@BACKEND
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Output folder."
)
@click.option("--as-test", is_flag=True, help="Write a pytest test.")
@options(STANDALONE, MODULE, CODE)
@click.argument("source", metavar="SCRIPT|REPRO|RUN|issue")
@ARGS
def repro(**arguments: Any) -> None:
    """Write repro scripts on demand.

    \b
    tcdebug repro SCRIPT [ARGS]        a repro of each graph that SCRIPT compiles, healthy or not
    tcdebug repro --as-test REPRO      a pytest test from a repro script or a RUN
    tcdebug repro --standalone REPRO   a repro that runs without tcdebug, from another or a RUN
    tcdebug repro issue [RUN]          a bug report for the failure of a RUN

    Exit status: 0 written, 1 a graph does not pass, 2 usage, 3 internal error, 4 no graph,
    5 SCRIPT fails in eager, 130 Ctrl-C.
    """
    if arguments["source"] == "issue":  # ./issue is a script
        issue.main(args=list(arguments["args"]), prog_name="tcdebug repro issue")
    call("repro", **arguments)


@click.command(context_settings=CONTEXT)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file.")
@RUN
def issue(**arguments: Any) -> None:
    """Fill in PyTorch's bug report form.

    Uses RUN, or the newest run with a failure.

    Exit status: 0 written, 2 no such run or no failure in it, 3 internal error.
    """
    call("issue", **arguments)


@cli.command()
@click.argument("prefix", required=False)
@click.option(
    "--backend",
    type=click.Choice(["tcdebug", "inductor"]),
    default="tcdebug",
    show_default=True,
    help="Backend whose units are listed.",
)
@JSON
def units(**arguments: Any) -> None:
    """List the units that can be switched off.

    With PREFIX, lists only that unit and the units below it.
    """
    call("units", **arguments)


@cli.command()
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="DAYS",
    help="With clear: remove only files that are older.",
)
@JSON
def cache(action: str, **arguments: Any) -> None:
    """Show the cache of compiled kernels (info) or empty it (clear)."""
    call("cache", clear=action == "clear", **arguments)


@cli.command()
@click.option("--patches", is_flag=True, help="List what tcdebug patches in torch.")
@JSON
def doctor(**arguments: Any) -> None:
    """Check the requirements: torch, compiler, vector math, folders.

    With --patches, list every attribute of torch that tcdebug replaces while it runs, what the
    patch is for, and whether it fits this torch. Exit status: 0 all is well,
    1 something is missing or a patch does not fit, 3 internal error.
    """
    call("doctor", **arguments)


@cli.command()
@click.argument("run_a", shell_complete=complete_run)
@click.argument("run_b", shell_complete=complete_run)
@JSON
def diff(**arguments: Any) -> None:
    """Compare two runs.

    Shows why RUN_B compiles differently from RUN_A, or more slowly. Compares environment,
    settings, graphs with the first stage that differs, decisions, kernels, breaks, recompiles,
    caches, and seconds by stage. Exit status: 0 nothing differs except times, 1 something differs,
    2 no such run, 3 internal error.
    """
    call("diff", **arguments)


@cli.command()
@click.argument("run_names", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="Output file.",
)
def report(**arguments: Any) -> None:
    """Write a report of RUNs as one HTML file.

    RUN defaults to the newest run. The file works offline.

    Exit status: 0 written, 2 no such run or a file that cannot be written, 3 internal error.
    """
    call("report", **arguments)


@cli.command()
@click.argument("shell", type=click.Choice([*SHELLS]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options and run names.

    bash: eval "$(tcdebug completion bash)" in ~/.bashrc; fish: tcdebug completion fish | source
    """
    click.echo(SHELLS[shell](cli, {}, "tcdebug", "_TCDEBUG_COMPLETE").source())


cli.add_command(logs)
cli.add_command(fuzz)
cli.add_command(since)
cli.add_command(values)


def disk_problem(problem: Exception) -> str:
    """Return the disk error that ended a command or the session of a script; empty if none did."""
    if isinstance(problem, OSError) and problem.errno in DISK:
        return f"{problem.strerror}: {problem.filename or Path.cwd()}"
    last = str(problem).rstrip().rpartition("\n")[2]
    found = re.fullmatch(r"OSError: \[Errno (\d+)\] ([^:]+)(?:: .*)?", last)
    if found is None or int(found[1]) not in DISK:
        return ""
    return f"{found[2]}, in the process that runs the script"


def problem_of_importing_torch() -> str:
    """Return the error that `import torch` raises in a process of its own; empty if it works."""
    command = [sys.executable, "-c", "import torch"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return ""
    return ended.stderr.rstrip().rpartition("\n")[2] or f"exit status {ended.returncode}"


def main() -> None:
    """The entry point of the `tcdebug` command.

    A bad TCDEBUG_* variable, a full disk and a torch that cannot be imported are exit status 2, an
    internal error 3.
    """
    try:
        cli.main(prog_name="tcdebug", standalone_mode=True)
    except (BadOption, BadToggle) as problem:
        from tcdebug.display.console import error  # noqa: PLC0415 - start-up time

        error(problem.code, str(problem))
        sys.exit(USAGE)
    except Exception as problem:
        from tcdebug.display.console import error, messages  # noqa: PLC0415 - start-up time

        if full := disk_problem(problem):
            error("TCD004", full, "free some space, or run tcdebug in another folder")
            sys.exit(USAGE)
        if unimportable := problem_of_importing_torch():
            shown = f"{shlex.quote(sys.executable)} -c 'import torch'"
            error("TCD022", f"import torch: {unimportable}", f"`{shown}` shows the traceback")
            sys.exit(USAGE)
        from rich.traceback import Traceback  # noqa: PLC0415 - start-up time

        messages().print(Traceback())
        error(
            "TCD015",
            "this is a bug in tcdebug, not in your script",
            "please report it with the traceback above and the output of tcdebug doctor",
        )
        sys.exit(3)
