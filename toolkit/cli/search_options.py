"""Options of the commands that search for a culprit: budget, limits, and what counts as failing."""

from __future__ import annotations

import os
import re
import shlex
import shutil

import click

from tcdebug.cli.options import BACKEND, JSON_FORMAT, OFF, OUTPUT_FORMAT, QUIET, STANDALONE
from tcdebug.minifier.cases.criteria import ORACLES
from tcdebug.minifier.processes.process import Limits


def _regex(context: click.Context, option: click.Parameter, given: str) -> str:
    """Reject an invalid regular expression."""
    try:
        re.compile(given)
    except re.error as problem:
        what = f"invalid regular expression: {problem}"
        raise click.BadParameter(what, context, option) from None
    return given


def _check(context: click.Context, option: click.Parameter, given: str) -> str:
    """Reject a command that does not exist."""
    try:
        words = shlex.split(given)
    except ValueError as problem:
        raise click.BadParameter(str(problem), context, option) from None
    if words and "=" not in words[0] and shutil.which(words[0]) is None:
        raise click.BadParameter(f"no such command: {words[0]!r}", context, option)
    return given


SECONDS = click.option(
    "--seconds",
    type=click.FloatRange(min=1.0),
    default=3600.0,
    show_default=True,
    help="Time limit of the search in seconds.",
)
SCRIPT_SECONDS = click.option(
    "--script-seconds",
    type=click.FloatRange(min=0.0),
    default=600.0,
    show_default=True,
    help="Time for minimising a script that fails only as a whole; 0 leaves it as it is.",
)
RERUNS = click.option(
    "--reruns",
    type=click.IntRange(1),
    default=2000,
    show_default=True,
    help="Maximum number of reruns.",
)
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=Limits().seconds,
    show_default=True,
    help="Time limit of the first run of a graph in seconds.",
)
MEMORY = click.option(
    "--memory",
    type=click.FloatRange(min=0.1),
    default=(Limits().memory or 0) / (1 << 30),
    show_default=True,
    help="Memory limit of a candidate in GiB.",
)
ORACLE = click.option(
    "--oracle",
    type=click.Choice(ORACLES),
    default="default",
    show_default=True,
    help="What counts as a failure.",
)
SLOWER_THAN = click.option(
    "--slower-than",
    type=click.FloatRange(min=1.0),
    default=1.2,
    show_default=True,
    help="With --oracle perf: slow means more than this many times the time of eager.",
)
LONGER_THAN = click.option(
    "--longer-than",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="With --oracle compile-time: slow means more than this many CPU-seconds per graph.",
)
FAIL_REGEX = click.option(
    "--fail-regex",
    default="",
    metavar="REGEX",
    callback=_regex,
    help="Count only failures whose kind, signature or message match.",
)
CHECK = click.option(
    "--check",
    default="",
    metavar="COMMAND",
    callback=_check,
    help="Judge each candidate's script, {}, by a command: 0 good, 125 skip, otherwise bad.",
)
CONFIDENCE = click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.99,
    show_default=True,
    help="Confidence required to name the culprit of a flaky failure.",
)
CORES = os.cpu_count() or 1
JOBS = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=min(4, max(1, CORES // 2)),
    show_default="half the cores, at most 4",
    help="Number of parallel candidates; the result does not depend on it. A script that is "
    "minimised as a whole has at least 2.",
)
FRESH = click.option("--fresh", is_flag=True, help="Do not continue an interrupted run.")
LIMITS = (SECONDS, SCRIPT_SECONDS, RERUNS, TIMEOUT, MEMORY, JOBS, FRESH)
JUDGING = (ORACLE, SLOWER_THAN, LONGER_THAN, FAIL_REGEX, CHECK, CONFIDENCE)
SEARCH = (BACKEND, OFF, *JUDGING, *LIMITS, STANDALONE, QUIET, OUTPUT_FORMAT, JSON_FORMAT)
