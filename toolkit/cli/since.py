"""The command `tcdebug since` and its flags."""

from __future__ import annotations

from typing import Any

import click

from tcdebug.cli.options import ARGS, CONTEXT, JSON, SCRIPT, call, options

TORCH = click.option(
    "--torch",
    required=True,
    metavar="VERSIONS",
    help="Versions of torch: 2.11..2.15, or a list such as 2.11,2.13.1.",
)
PYTHON = click.option(
    "--python",
    multiple=True,
    metavar="[VERSION=]PATH",
    help="An interpreter that has this version of torch, or the one that makes environments.",
)
PACKAGES = click.option(
    "--with", "packages", multiple=True, metavar="PACKAGE", help="Also install this package."
)
INDEX_URL = click.option(
    "--index-url", default="", metavar="URL", help="Install packages from this index."
)
TIMEOUT = click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=600.0,
    show_default=True,
    help="Time limit of a run in seconds.",
)
EVERY = click.option("--all", "every", is_flag=True, help="Run every version instead of bisecting.")


@click.command(context_settings={**CONTEXT, "ignore_unknown_options": True})
@options(TORCH, PYTHON, PACKAGES, INDEX_URL, TIMEOUT, EVERY, JSON, SCRIPT, ARGS)
def since(**arguments: Any) -> None:
    """Find the version of torch in which a failure began or ended.

    Runs a repro or a script with several versions of torch. uv or pip makes a virtual environment
    for each, which is kept. A repro judges itself. Another script fails if it raises, crashes or
    hangs. Unknown options, and everything after --, are passed to the script.

    \b
    tcdebug since repro.py --torch 2.11..2.15
    tcdebug since repro.py --torch 2.12,2.15 --python 2.15=~/conda/envs/new/bin/python

    Exit status: 0 some version fails, 1 a version could not be run, 2 usage, 3 internal error,
    4 no version fails.
    """
    call("since", **arguments)
