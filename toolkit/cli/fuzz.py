"""The subcommands of `tcdebug fuzz` and their flags, and nothing else."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tcdebug.cli.options import CONTEXT, JSON, QUIET, options
from tcdebug.output.formats import FORMATS

BACKEND = click.option(
    "--backend", default="tcdebug", show_default=True, help="What is fuzzed: a backend by name."
)
SECONDS = click.option("--seconds", type=click.FloatRange(min=1), help="Seconds it may take.")
EXAMPLES = click.option("--examples", type=click.IntRange(1), help="Programs it may draw.")
SEED = click.option("--seed", type=click.IntRange(0), help="Draw the programs of this seed.")
UNITS = click.option(
    "--units", default="", metavar="UNIT,...", help="Only these are switched off now and then."
)
JOBS = click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=max(1, (os.cpu_count() or 1) // 2),
    show_default="half the cores", help="Workers.",
)  # fmt: skip
FINDINGS = click.option(
    "--findings", type=click.Path(file_okay=False, path_type=Path),
    default=Path(".tcdebug") / "findings", show_default=True, help="The folder of findings.",
)  # fmt: skip
DATABASE = click.option(
    "--database", default=str(Path(".tcdebug") / "examples"), show_default=True,
    metavar="FOLDER|redis://...", help="Where Hypothesis keeps what failed; empty for nowhere.",
)  # fmt: skip
BISECT = click.option("--bisect/--no-bisect", default=True, help="Minify and bisect what is found.")
SETUP = click.option(
    "--setup", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python file that every worker runs first.",
)  # fmt: skip
TIMEOUT = click.option(
    "--timeout", default=60.0, show_default=True, help="Seconds a program may take."
)
MEMORY = click.option("--memory", default=4.0, show_default=True, help="GiB a program may use.")
STOP_AFTER = click.option(
    "--stop-after", type=click.IntRange(1), help="End a worker that has made so many findings."
)
ENGINE = click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
    help="Workers here, or -j on each node of the Ray cluster that RAY_ADDRESS names.",
)  # fmt: skip
NAMES = click.argument("names", nargs=-1, metavar="[FINDING]...")
HUNTING = (
    BACKEND, SECONDS, EXAMPLES, SEED, UNITS, JOBS, FINDINGS, DATABASE, BISECT, SETUP, TIMEOUT,
    MEMORY, STOP_AFTER, ENGINE,
)  # fmt: skip


@click.group(context_settings=CONTEXT)
def fuzz() -> None:
    """Draw programs with Hypothesis, and compare what a backend makes of them with eager."""


def _command(name: str, **arguments: Any) -> None:
    sys.exit(getattr(import_module("tcdebug.commands.fuzz"), name)(**arguments))


@fuzz.command("run")
@options(*HUNTING, QUIET, JSON)
def run(**arguments: Any) -> None:
    """Fuzz until the seconds or examples are used up; ten minutes if neither is given.

    Exit status: 0 nothing new, 1 new findings, 2 usage, 3 internal error, 130 Ctrl-C.
    """
    _command("run", **arguments)


@fuzz.command("ci")
@click.option(
    "--mode", type=click.Choice(["code-change", "batch"]), default="code-change",
    show_default=True, help="Two minutes of one seed, or an hour of new ones.",
)  # fmt: skip
@click.option(
    "--output-format", "style", type=click.Choice(FORMATS), default="concise",
    show_default=True, help="How the findings are written.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file; else stdout."
)
@options(*HUNTING, QUIET)
def ci(**arguments: Any) -> None:
    """Judge what was fixed again, then fuzz; only what is new fails.

    Exit status: 0 nothing new, 1 new findings, 2 usage, 3 internal error, 130 Ctrl-C.
    """
    _command("ci", **arguments)


@fuzz.command("replay")
@options(FINDINGS, TIMEOUT, MEMORY, JSON, NAMES)
def replay(**arguments: Any) -> None:
    """Judge findings again, all of them or those whose folders begin so.

    Exit status: 0 all pass, 1 some fail, 2 usage, 3 internal error.
    """
    _command("replay", **arguments)


@fuzz.command("triage")
@click.option("--known", is_flag=True, help="Only mark them as known.")
@options(FINDINGS, TIMEOUT, MEMORY, JSON, NAMES)
def triage(**arguments: Any) -> None:
    """Judge findings again and mark them: fixed if they pass, new if what was fixed fails.

    Exit status: 0 marked, 2 usage, 3 internal error.
    """
    _command("triage", **arguments)


@fuzz.command("stats")
@JSON
@click.argument("run_name", metavar="[RUN]", required=False)
def stats(**arguments: Any) -> None:
    """The numbers of a campaign: RUN, or the newest.

    Exit status: 0 shown, 2 no such run.
    """
    _command("stats", **arguments)
