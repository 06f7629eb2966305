"""Every subcommand and flag, and nothing else. Commands are imported when they are called."""

from __future__ import annotations

import os
import re
import shlex
import shutil
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
    CONTEXT,
    JSON,
    JSON_FORMAT,
    OFF,
    OUTPUT_FORMAT,
    PASS_ON,
    QUIET,
    RUN,
    SCRIPT,
    USAGE,
    RunCommand,
    call,
    complete_run,
    options,
)
from tcdebug.compiler.configuration.options import BadOption
from tcdebug.compiler.gate.toggles import BadToggle
from tcdebug.minifier.cases.criteria import ORACLES


def _regex(context: click.Context, option: click.Parameter, given: str) -> str:
    """A regular expression that can be read."""
    try:
        re.compile(given)
    except re.error as problem:
        raise click.BadParameter(f"no regular expression: {problem}", context, option) from None
    return given


def _check(context: click.Context, option: click.Parameter, given: str) -> str:
    """A command that there is."""
    try:
        words = shlex.split(given)
    except ValueError as problem:
        raise click.BadParameter(str(problem), context, option) from None
    if words and "=" not in words[0] and shutil.which(words[0]) is None:
        raise click.BadParameter(f"no command {words[0]!r}", context, option)
    return given


SECONDS = click.option(
    "--seconds", default=3600.0, show_default=True, help="Seconds the search may take."
)
RERUNS = click.option("--reruns", default=2000, show_default=True, help="Reruns it may use.")
TIMEOUT = click.option(
    "--timeout", default=120.0, show_default=True, help="Seconds the first run of a graph may take."
)
MEMORY = click.option(
    "--memory", default=8.0, show_default=True, help="GiB that a candidate may use."
)
ORACLE = click.option(
    "--oracle",
    type=click.Choice(ORACLES),
    default="default",
    show_default=True,
    help="What a failure is.",
)
SLOWER_THAN = click.option(
    "--slower-than",
    type=click.FloatRange(min=1.0),
    default=1.2,
    show_default=True,
    help="With --oracle perf: times the seconds of eager that are slow.",
)
LONGER_THAN = click.option(
    "--longer-than",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="With --oracle compile-time: CPU-seconds of compiling a graph that are too many.",
)
FAIL_REGEX = click.option(
    "--fail-regex",
    default="",
    metavar="REGEX",
    callback=_regex,
    help="Only failures whose kind, signature or message match.",
)
CHECK = click.option(
    "--check",
    default="",
    metavar="COMMAND",
    callback=_check,
    help="Judge by a command on each candidate's script, {} in it: 0 good, 125 skip, else bad.",
)
CONFIDENCE = click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.99,
    show_default=True,
    help="Name a culprit of a flaky failure only if so sure.",
)
CORES = os.cpu_count() or 1
JOBS = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=min(4, max(1, CORES // 2)),
    show_default="half the cores, at most 4",
    help="Candidates that run at the same time; the result is the same.",
)
FRESH = click.option("--fresh", is_flag=True, help="Do not go on from an interrupted run.")
LIMITS = (SECONDS, RERUNS, TIMEOUT, MEMORY, JOBS, FRESH)
JUDGING = (ORACLE, SLOWER_THAN, LONGER_THAN, FAIL_REGEX, CHECK, CONFIDENCE)
SEARCH = (BACKEND, OFF, *JUDGING, *LIMITS, QUIET, OUTPUT_FORMAT, JSON_FORMAT)


SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="tcdebug")
def cli() -> None:
    """Find out why torch.compile fails: which step, on which graph, with a repro.

    Start with: tcdebug bisect script.py
    """


@cli.command(context_settings=PASS_ON)
@options(*SEARCH)
@click.option("--minify/--no-minify", default=True, help="Also make the graph small.")
@SCRIPT
@ARGS
def bisect(**arguments: Any) -> None:
    """Find the step of the compiler that makes SCRIPT fail, and write a repro.

    The script is not edited, and runs with ARGS. Exit status: 0 culprit found and confirmed,
    1 fails but no culprit confirmed, 2 usage, 3 internal error, 4 nothing fails, 5 fails in eager,
    6 budget used up, 130 Ctrl-C (the same command goes on from there).
    """
    call("bisect", **arguments)


@cli.command(context_settings=PASS_ON)
@options(*SEARCH)
@SCRIPT
@ARGS
def minify(**arguments: Any) -> None:
    """Make the failing graph of SCRIPT (or of a repro script) small, without bisecting.

    Exit status: 0 minimised and verified, 1 fails but not by itself, otherwise as bisect.
    """
    call("minify", **arguments)


@cli.command(cls=RunCommand, context_settings=PASS_ON)
@BACKEND
@OFF
@CHECK_RUN
@click.option("--every-call", is_flag=True, help="Journal the inputs of every call of a graph.")
@QUIET
@SCRIPT
@ARGS
def run(**arguments: Any) -> None:
    """Run SCRIPT with ARGS; whatever fails in a compiled graph leaves a repro.

    Exit status: that of the script; 1 when --check found a wrong result or a missing guard;
    128 + n when the process died of signal n.
    """
    call("run", **arguments)


@cli.command(context_settings=PASS_ON)
@BACKEND
@OUTPUT_FORMAT
@JSON_FORMAT
@click.argument("script", metavar="SCRIPT|CODE")
@ARGS
def explain(**arguments: Any) -> None:
    """Run SCRIPT with ARGS and say what torch.compile made of it; or say what a CODE means.

    \b
    tcdebug explain script.py    one screen of what became of a script
    tcdebug explain TCD012       an error of tcdebug: what it means, and what to do

    Graphs, graph breaks with their lines and what to do, recompiles with the value that caused
    them, constants, what is left to ATen, and what each costs. Exit status: 0 explained, 1 SCRIPT
    failed, 2 usage, or no such script or code, 3 internal error, 4 SCRIPT compiles nothing,
    130 Ctrl-C.
    """
    call("explain", **arguments)


@cli.command(context_settings=PASS_ON)
@click.option("--graph", type=click.IntRange(0), help="Only this graph of SCRIPT, from 0.")
@BACKEND
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder to write to.",
)
@click.option("--as-test", is_flag=True, help="Write a test for pytest.")
@click.argument("source", metavar="SCRIPT|REPRO|RUN|issue")
@ARGS
def repro(**arguments: Any) -> None:
    """Write repro scripts on demand.

    \b
    tcdebug repro SCRIPT [ARGS]     one of each graph that SCRIPT compiles, healthy or not
    tcdebug repro --as-test REPRO   a test for pytest, of a repro script or of a RUN
    tcdebug repro issue [RUN]       a report of the bug that a RUN found

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
    """Fill in PyTorch's form for bugs with what RUN found, or the newest that found a failure.

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
    help="Whose units.",
)
@JSON
def units(**arguments: Any) -> None:
    """List the units that can be switched off, all of them or those below PREFIX."""
    call("units", **arguments)


@cli.command()
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="DAYS",
    help="With clear: only what was written longer ago.",
)
@JSON
def cache(action: str, **arguments: Any) -> None:
    """Show what is kept between compiles (info), or remove it (clear)."""
    call("cache", clear=action == "clear", **arguments)


@cli.command()
@click.option("--patches", is_flag=True, help="List what tcdebug patches in torch instead.")
@JSON
def doctor(**arguments: Any) -> None:
    """Check what compiling needs: torch, compiler, vector math, folders.

    With --patches, list every attribute of torch that tcdebug replaces while it works, what it
    could not do without, and whether the patch fits this torch. Exit status: 0 all is well,
    1 something is missing or a patch does not fit, 3 internal error.
    """
    call("doctor", **arguments)


@cli.command()
@click.argument("run_a", shell_complete=complete_run)
@click.argument("run_b", shell_complete=complete_run)
@JSON
def diff(**arguments: Any) -> None:
    """Say why RUN_B compiles otherwise, or slower, than RUN_A.

    Environment, settings, graphs and the stage at which they part, decisions, kernels, breaks,
    recompiles, caches, seconds by stage. Exit status: 0 nothing differs but times, 1 something
    does, 2 no such run, 3 internal error.
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
    help="The file to write.",
)
def report(**arguments: Any) -> None:
    """Write RUNs (the newest by default) as one HTML file that needs no network.

    Exit status: 0 written, 2 no such run or a file that cannot be written, 3 internal error.
    """
    call("report", **arguments)


@cli.command()
@click.argument("shell", type=click.Choice([*SHELLS]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and the names of runs.

    bash: eval "$(tcdebug completion bash)" in ~/.bashrc; fish: tcdebug completion fish | source
    """
    click.echo(SHELLS[shell](cli, {}, "tcdebug", "_TCDEBUG_COMPLETE").source())


cli.add_command(logs)
cli.add_command(fuzz)


def main() -> None:
    """The entry point of the `tcdebug` command.

    A bad TCDEBUG_* variable is exit status 2, an internal error 3.
    """
    try:
        cli.main(prog_name="tcdebug", standalone_mode=True)
    except (BadOption, BadToggle) as problem:
        from tcdebug.display.console import error  # noqa: PLC0415 - start-up time

        error(problem.code, str(problem))
        sys.exit(USAGE)
    except Exception:
        from rich.traceback import Traceback  # noqa: PLC0415 - start-up time

        from tcdebug.display.console import error, messages  # noqa: PLC0415 - start-up time

        messages().print(Traceback())
        error(
            "TCD015",
            "this is a fault of tcdebug, not of your script",
            "please report it with the traceback above and the output of: tcdebug doctor",
        )
        sys.exit(3)
