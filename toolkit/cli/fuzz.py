"""Subcommands and flags of `tcdebug fuzz`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tcdebug.cli.options import CONTEXT, JSON, QUIET, call, options
from tcdebug.output.formats import FORMATS
from tcdebug.strategies.devices import CPU, CUDA
from tcdebug.strategies.kinds import ProgramKind

BACKEND = click.option(
    "--backend", default="tcdebug", show_default=True, help="The backend to fuzz, by name."
)
SECONDS = click.option("--seconds", type=click.FloatRange(min=1), help="Time limit in seconds.")
EXAMPLES = click.option("--examples", type=click.IntRange(1), help="Maximum number of programs.")
SEED = click.option("--seed", type=click.IntRange(0), help="Seed of the random programs.")
UNITS = click.option(
    "--units",
    default="",
    metavar="UNIT,...",
    help="Switch off only these units in some programs.",
)
JOBS = click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=max(1, (os.cpu_count() or 1) // 2),
    show_default="half the cores", help="Number of workers.",
)  # fmt: skip
FINDINGS = click.option(
    "--findings", type=click.Path(file_okay=False, path_type=Path),
    default=Path(".tcdebug") / "findings", show_default=True, help="Folder for the findings.",
)  # fmt: skip
DATABASE = click.option(
    "--database", default=str(Path(".tcdebug") / "examples"), show_default=True,
    metavar="FOLDER|redis://...",
    help="Where Hypothesis keeps failing programs; empty for nowhere.",
)  # fmt: skip
BISECT = click.option("--bisect/--no-bisect", default=True, help="Minify and bisect the findings.")
SETUP = click.option(
    "--setup", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python file that each worker runs first.",
)  # fmt: skip
TIMEOUT = click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
    help="Time limit of a program in seconds.",
)  # fmt: skip
MEMORY = click.option(
    "--memory", type=click.FloatRange(min=0.1), default=4.0, show_default=True,
    help="Memory limit of a program in GiB.",
)  # fmt: skip
STOP_AFTER = click.option(
    "--stop-after", type=click.IntRange(1), help="Stop a worker after this many findings."
)
ENGINE = click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
    help="Run workers here, or -j workers on each node of the Ray cluster at RAY_ADDRESS.",
)  # fmt: skip
DEVICE = click.option(
    "--device", type=click.Choice([CPU, CUDA]), default=CPU, show_default=True,
    help="Where the programs run. Workers share a GPU.",
)  # fmt: skip
LARGE = click.option(
    "--large",
    is_flag=True,
    help="With --device cuda: tensors of more than 2**31 elements, which take tens of GiB.",
)
PROGRAMS = click.option(
    "--programs", type=click.Choice([kind.value for kind in ProgramKind]),
    default=ProgramKind.GRAPHS.value, show_default=True,
    help="Draw graphs of operators, or Python functions with state and several calls.",
)  # fmt: skip
NAMES = click.argument("names", nargs=-1, metavar="[FINDING]...")
HUNTING = (
    BACKEND, SECONDS, EXAMPLES, SEED, UNITS, JOBS, FINDINGS, DATABASE, BISECT, SETUP, TIMEOUT,
    MEMORY, STOP_AFTER, ENGINE, DEVICE, LARGE, PROGRAMS,
)  # fmt: skip


@click.group(context_settings=CONTEXT)
def fuzz() -> None:
    """Fuzz a backend.

    Generates programs with Hypothesis and compares the results with eager.
    """


def _also(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> list[tuple[str, Path]]:
    """Return the formats and files of --also; a usage error if one is invalid."""
    pairs = [text.partition("=") for text in given]
    if wrong := [
        text
        for (style, _, name), text in zip(pairs, given, strict=True)
        if style not in FORMATS or not name
    ]:
        what = f"{wrong[0]!r} is not FORMAT=FILE; the formats are {', '.join(FORMATS)}"
        raise click.BadParameter(what, context, option)
    return [(style, Path(name)) for style, _, name in pairs]


@fuzz.command("run")
@options(*HUNTING, QUIET, JSON)
def run(**arguments: Any) -> None:
    """Fuzz a backend.

    Stops when --seconds or --examples is used up. The default is ten minutes.

    Exit status: 0 nothing new, 1 new findings, 2 usage, 3 internal error, 130 Ctrl-C.
    """
    call("fuzz", "run", **arguments)


@fuzz.command("ci")
@click.option(
    "--mode", type=click.Choice(["code-change", "batch"]), default="code-change",
    show_default=True, help="Two minutes with a fixed seed, or an hour with a new seed.",
)  # fmt: skip
@click.option(
    "--output-format", "style", type=click.Choice(FORMATS), default="concise",
    show_default=True, help="Format of the findings.",
)  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to a file, not stdout.",
)
@click.option(
    "--also", multiple=True, metavar="FORMAT=FILE", callback=_also,
    help="Also write the findings to FILE in this format.",
)  # fmt: skip
@options(*HUNTING, QUIET)
def ci(**arguments: Any) -> None:
    """Fuzz in CI.

    Judges the fixed findings again, then fuzzes. Only new findings fail.

    Exit status: 0 nothing new, 1 new findings, 2 usage, 3 internal error, 130 Ctrl-C.
    """
    call("fuzz", "ci", **arguments)


@fuzz.command("replay")
@options(FINDINGS, TIMEOUT, MEMORY, JSON, NAMES)
def replay(**arguments: Any) -> None:
    """Judge findings again.

    Judges all findings, or those whose names begin with FINDING.

    Exit status: 0 all pass, 1 some fail, 2 usage, 3 internal error.
    """
    call("fuzz", "replay", **arguments)


@fuzz.command("triage")
@click.option("--known", is_flag=True, help="Only mark the findings as known.")
@options(FINDINGS, TIMEOUT, MEMORY, JSON, NAMES)
def triage(**arguments: Any) -> None:
    """Judge findings again and mark them.

    A finding that passes is marked fixed. A fixed finding that fails is marked new.

    Exit status: 0 marked, 2 usage, 3 internal error.
    """
    call("fuzz", "triage", **arguments)


@fuzz.command("stats")
@JSON
@click.argument("run_name", metavar="[RUN]", required=False)
def stats(**arguments: Any) -> None:
    """Show the statistics of a campaign.

    RUN defaults to the newest campaign.

    Exit status: 0 shown, 2 no such run.
    """
    call("fuzz", "stats", **arguments)
