"""The command `tcdebug values` and its flags."""

from __future__ import annotations

from typing import Any

import click

from tcdebug.cli.options import (
    ARGS,
    BACKEND,
    CODE,
    CONTEXT,
    JSON,
    MODULE,
    OFF,
    PASS_ON,
    SCRIPT,
    call,
    options,
)
from tcdebug.cli.program import ProgramCommand
from tcdebug.minifier.values.findings import ORACLES

ORACLE = click.option(
    "--oracle",
    type=click.Choice(ORACLES),
    default="default",
    show_default=True,
    help="What counts as wrong; bitwise finds the first step that loses bit equality with eager.",
)
TWICE = click.option(
    "--twice", is_flag=True, help="Run each call twice and find the first step whose bits differ."
)
CALLS = click.option(
    "--calls",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Number of calls of each graph to observe.",
)


@click.command(cls=ProgramCommand, context_settings={**CONTEXT, **PASS_ON})
@options(BACKEND, OFF, ORACLE, TWICE, CALLS, JSON, MODULE, CODE, SCRIPT, ARGS)
def values(**arguments: Any) -> None:
    """Find the first kernel of SCRIPT whose values are wrong.

    SCRIPT runs with ARGS. Each kernel is compared with eager and float64 on the values that it
    read itself, in forward and in backward, without a repro. The script ends at the first kernel
    whose error is larger than rounding explains. Instead of SCRIPT, give -m MODULE, -c CODE, or an
    installed command such as pytest.

    Exit status: 0 found, 1 SCRIPT failed, or results differ but no step explains them, 2 usage,
    3 internal error, 4 nothing is wrong, 130 Ctrl-C.
    """
    call("values", **arguments)
