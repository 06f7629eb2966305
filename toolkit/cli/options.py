"""Arguments and options that several commands share, and the call of a command."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import click

from tcdebug.cli.closed_units import all_known
from tcdebug.cli.program import ProgramCommand
from tcdebug.cli.script_argument import ScriptFile
from tcdebug.cli.termination import INTERRUPTED, interrupt_on_sigterm
from tcdebug.compiler.gate.toggles import BadToggle, Toggles
from tcdebug.output.formats import FORMATS

USAGE = 2
"""Exit status of a usage error, as in click."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
PASS_ON = {"allow_interspersed_args": False}  # what follows SCRIPT is passed to it

SCRIPT = click.argument("script", type=ScriptFile())
MODULE = click.option(
    "-m", "module", metavar="MODULE", expose_value=False, help="Run a module, as python -m does."
)
CODE = click.option(
    "-c", "code", metavar="CODE", expose_value=False, help="Run code, as python -c does."
)
ARGS = click.argument("args", nargs=-1, type=click.UNPROCESSED)


def complete_run(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """Return names of runs with this beginning, for shell completion."""
    from tcdebug.reading.run_dir import runs  # noqa: PLC0415 - start-up time

    return [r.path.name for r in runs() if r.path.name.startswith(begun)]


RUN = click.argument("run_name", metavar="[RUN]", required=False, shell_complete=complete_run)
BACKEND = click.option("--backend", help="Compile with this backend instead of the script's.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
JSON_FORMAT = click.option(
    "--json", "style", flag_value="json", help="The same as --output-format json."
)
OUTPUT_FORMAT = click.option(
    "--output-format",
    "style",
    type=click.Choice(["full", "concise", "json", *(f for f in FORMATS if f != "concise")]),
    default="full",
    show_default=True,
    help="Format of the output on stdout.",
)
STANDALONE = click.option(
    "--standalone", is_flag=True, help="Put the judge into repros, to run them without tcdebug."
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Do not show progress on stderr.")


def _toggles(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Return the toggles of --off in canonical form; exit status 2 if one is invalid.

    Those of TCDEBUG_OFF, which the script's processes inherit, are checked too.
    """
    inherited = [name for name in os.environ.get("TCDEBUG_OFF", "").split(",") if name]
    try:
        toggles = Toggles.parse(given)
        both = (toggles, Toggles.parse(inherited))
        if not all([all_known(some) for some in both]):
            from tcdebug.minifier.targets.unit_names import (  # noqa: PLC0415 - imports torch
                check_toggles,
            )

            for some in both:
                check_toggles(some)
        return toggles.texts()
    except BadToggle as problem:
        from tcdebug.display.console import error  # noqa: PLC0415 - start-up time

        next_step = "tcdebug units [--backend inductor] lists the units"
        error("TCD005", str(problem), next_step)
        context.exit(USAGE)


OFF = click.option(
    "--off",
    multiple=True,
    metavar="TOGGLE",
    callback=_toggles,
    help="Switch off a UNIT, a decision (site:ID), or all but the first decisions (UNIT:COUNT).",
)


CHECKS = ("results", "guards")
"""What `run --check` compares: results with eager, or reused graphs with fresh ones."""
CHECK_RUN = click.option(
    "--check",
    is_flag=False,
    flag_value=CHECKS[0],
    type=click.Choice(CHECKS),
    help="Compare every call of a compiled graph with eager; `guards` finds missing guards.",
)


EVERY_CALL = click.option(
    "--every-call", is_flag=True, help="Record the inputs of every call of a graph."
)
PROFILE = click.option(
    "--profile", is_flag=True, help="Measure what each line and each kernel of the graphs costs."
)
STEPS = click.option(
    "--steps",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="With --profile: measure at most this many calls of the compiled code.",
)


FAILURES_FILE = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the failures to this file.",
)
FAILURES_FORMAT = click.option(
    "--output-format",
    "style",
    type=click.Choice(FORMATS),
    help="Format of that file.  [default: concise]",
)


class RunCommand(ProgramCommand):
    """A command whose `--check` may be given without a value, and whose options may conflict."""

    values: ClassVar = {"--check": CHECKS}

    def invoke(self, context: click.Context) -> Any:
        """Refuse options that do not go together."""
        given = context.params
        watching = given["check"] or given["every_call"]
        if given["profile"] and watching:
            context.fail("--profile measures the script alone, without --check and --every-call.")
        if given["as_json"] and not given["profile"]:
            context.fail("--json needs --profile, because stdout belongs to the script.")
        if given["profile"] and (given["output"] or given["style"]):
            context.fail("--profile takes --json; -o and --output-format are for failures.")
        if given["style"] and not given["output"]:
            context.fail("--output-format needs -o FILE, because stdout belongs to the script.")
        return super().invoke(context)


class SuggestingGroup(click.Group):
    """A group that suggests only commands that a mistyped word resembles."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. If the word is a script, the error shows how to run it."""
        name = args[0]
        if self.get_command(context, name) is None and not context.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(context), 2, 0.7)
            if name == "help":
                hint = "Try 'tcdebug --help' or 'tcdebug COMMAND --help'."
            elif Path(name).is_file():
                hint = f"Try 'tcdebug bisect {name}' or 'tcdebug run {name}'."
            elif near:
                hint = f"Did you mean {' or '.join(map(repr, near))}?"
            else:
                hint = f"The commands are {', '.join(self.list_commands(context))}."
            context.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(context, args)


def options(*given: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine options into one decorator; help shows them in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(given):
            function = option(function)
        return function

    return decorate


def call(module: str, function: str = "run", **arguments: Any) -> None:
    """Call the function of a command module and exit with the status that it returns."""
    interrupt_on_sigterm()
    try:
        status = getattr(import_module(f"tcdebug.commands.{module}"), function)(**arguments)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
