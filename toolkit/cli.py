"""Every subcommand and flag, and nothing else. Commands are imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from tcdebug import __version__
from tcdebug.compiler.gate import BadToggle, Toggles

USAGE = 2
"""Exit status of a command that was called wrongly; click's own."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
PASS_ON = {"allow_interspersed_args": False}  # what stands behind SCRIPT is the script's

SCRIPT = click.argument("script", type=click.Path(exists=True, dir_okay=False))
ARGS = click.argument("args", nargs=-1, type=click.UNPROCESSED)
BACKEND = click.option("--backend", help="Compile with this backend, whatever the script names.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")


def _toggles(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """What --off says, in its plain form."""
    try:
        return Toggles.parse(given).texts()
    except BadToggle as problem:
        from tcdebug.display.console import error  # noqa: PLC0415 - start-up time

        error(str(problem), "tcdebug units lists the units")
        context.exit(USAGE)


OFF = click.option(
    "--off",
    multiple=True,
    metavar="TOGGLE",
    callback=_toggles,
    help="Switch off: UNIT, site:ID, or UNIT:COUNT.",
)
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
FRESH = click.option("--fresh", is_flag=True, help="Do not go on from an interrupted run.")
SEARCH = (BACKEND, OFF, SECONDS, RERUNS, TIMEOUT, MEMORY, FRESH, QUIET, JSON)


def _with(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="tcdebug")
def cli() -> None:
    """Find out why torch.compile fails: which step, on which graph, with a repro.

    Start with: tcdebug bisect script.py
    """


def _command(name: str, **arguments: Any) -> None:
    """Run a command module and leave with its exit status."""
    sys.exit(import_module(f"tcdebug.commands.{name}").run(**arguments))


@cli.command(context_settings=PASS_ON)
@_with(*SEARCH)
@click.option("--minify/--no-minify", default=True, help="Also make the graph small.")
@SCRIPT
@ARGS
def bisect(**arguments: Any) -> None:
    """Find the step of the compiler that makes SCRIPT fail, and write a repro.

    The script is not edited, and runs with ARGS. Exit status: 0 culprit found and confirmed,
    1 fails but no culprit confirmed, 2 usage, 3 internal error, 4 nothing fails, 5 fails in eager,
    6 budget used up, 130 Ctrl-C (the same command goes on from there).
    """
    _command("bisect", **arguments)


@cli.command(context_settings=PASS_ON)
@_with(*SEARCH)
@SCRIPT
@ARGS
def minify(**arguments: Any) -> None:
    """Make the failing graph of SCRIPT (or of a repro script) small, without bisecting.

    Exit status: 0 minimised and verified, 1 fails but not by itself, otherwise as bisect.
    """
    _command("minify", **arguments)


@cli.command(context_settings=PASS_ON)
@BACKEND
@OFF
@click.option("--check", is_flag=True, help="Compare every call of a compiled graph with eager.")
@QUIET
@SCRIPT
@ARGS
def run(**arguments: Any) -> None:
    """Run SCRIPT with ARGS; whatever fails in a compiled graph leaves a repro.

    Exit status: that of the script; 1 when --check found a wrong result; 128 + n when the process
    died of signal n.
    """
    _command("run", **arguments)


@cli.command()
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--stage", help="Only this stage.")
@click.option("--graph", help="Only this compile id, such as 0/0.")
@click.option("--unit", help="Only decisions and passes of this unit.")
@click.option("--diff", metavar="UNIT", help="The graph before and after a pass or a stage.")
@click.option("--follow", is_flag=True, help="Show events as they are written.")
@click.option("--all", "everything", is_flag=True, help="Debug events too, such as decisions.")
@JSON
def logs(**arguments: Any) -> None:
    """Show what happened in RUN (the newest by default): stages, passes, decisions, kernels."""
    _command("logs", **arguments)


@cli.command()
@click.argument("prefix", required=False)
@JSON
def units(**arguments: Any) -> None:
    """List the units that can be switched off, all of them or those below PREFIX."""
    _command("units", **arguments)


@cli.command()
@JSON
def doctor(**arguments: Any) -> None:
    """Check what compiling needs: torch, compiler, vector math, folders."""
    _command("doctor", **arguments)


def main() -> None:
    """The entry point of the `tcdebug` command; an internal error is exit status 3."""
    try:
        cli.main(prog_name="tcdebug", standalone_mode=True)
    except Exception:
        from rich.traceback import Traceback  # noqa: PLC0415 - start-up time

        from tcdebug.display.console import error, messages  # noqa: PLC0415 - start-up time

        messages().print(Traceback())
        error(
            "this is a fault of tcdebug, not of your script",
            "please report it with the traceback above and the output of: tcdebug doctor",
        )
        sys.exit(3)
