"""Subcommands of `tcdebug logs`. Without a subcommand, it shows a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tcdebug.cli.options import CONTEXT, JSON, RUN, call, complete_run, options

STAGE = click.option("--stage", help="Only this stage.")
GRAPH = click.option("--graph", help="Only this compile id, such as 0/0.")
UNIT = click.option("--unit", help="Only decisions and passes of this unit.")
EVENT = click.option("--event", help="Only events of this kind, such as graph.break.")
LINE = click.option("--line", metavar="FILE:N", help="Only events of this line of the program.")


class _ShowsByDefault(click.Group):
    """A group that runs the command `show` if its first word is not a command."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Insert `show` if the first word is not a command."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["show", *args]
        return super().parse_args(context, args)


@click.group(cls=_ShowsByDefault, context_settings=CONTEXT)
def logs() -> None:
    """Show the events of a run. `tcdebug logs [RUN]` means `tcdebug logs show [RUN]`.

    RUN is a run folder or the beginning of its name. It defaults to the newest run.
    Exit status: 0 shown, 2 no such run or no matching event, 3 internal error.
    """


@logs.command()
@RUN
@options(STAGE, GRAPH, UNIT)
@click.option("--diff", metavar="UNIT", help="Show the graph before and after a pass or a stage.")
@click.option("--remarks", is_flag=True, help="Show what was fused, what was not and why, by line.")
@click.option("--follow", is_flag=True, help="Show events as they are written.")
@click.option("--all", "everything", is_flag=True, help="Show debug events too, such as decisions.")
@JSON
def show(**arguments: Any) -> None:
    """Show stages, passes, decisions and kernels.

    RUN defaults to the newest run.
    """
    call("logs.show", **arguments)


@logs.command("ls")
@JSON
def list_runs(**arguments: Any) -> None:
    """List the runs in ./.tcdebug.

    The newest comes first. Each has its time, result and command.
    """
    call("logs.ls", **arguments)


@logs.command("rm")
@click.argument("run_names", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--healthy", is_flag=True, help="Remove every run that found nothing.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0.0),
    metavar="DAYS",
    help="Remove every run that is older, or with --healthy those that found nothing.",
)
def remove(**arguments: Any) -> None:
    """Remove RUNs from ./.tcdebug, with their repros and logs.

    RUN is a run folder, its name, or a unique beginning of its name. A run in progress is not
    removed. Exit status: 0 removed, 2 no such run or run in progress, 3 internal error.
    """
    call("logs.rm", **arguments)


@logs.command()
@RUN
@JSON
def summary(**arguments: Any) -> None:
    """Summarise RUN.

    Shows time by stage, kernels by bytes, extern calls, breaks, recompiles and caches.
    """
    call("logs.summary", **arguments)


@logs.command()
@RUN
@JSON
def ranks(**arguments: Any) -> None:
    """Compare the ranks of RUN.

    Groups the ranks by what they compiled, and shows the first rank and step that differ: graphs,
    answers of caches, breaks, recompiles, and collectives inside graphs. RUN may also be a folder
    that TORCH_TRACE has written.

    Exit status: 0 all ranks did the same, 1 they differ, 2 no such run or only one rank,
    3 internal error.
    """
    call("logs.ranks", **arguments)


@logs.command()
@RUN
@options(STAGE, GRAPH, UNIT, EVENT, LINE)
@JSON
def query(**arguments: Any) -> None:
    """Show the events of RUN that match.

    An event must match all options. With --json, each line is one event.
    """
    call("logs.query", **arguments)


@logs.command()
@RUN
@click.option(
    "--format",
    "form",
    type=click.Choice(["chrome", "json", "csv", "parquet"]),
    default="chrome",
    show_default=True,
    help="A trace for Perfetto or chrome://tracing, or all events as one table.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to a file, not stdout.",
)
def export(**arguments: Any) -> None:
    """Export RUN for other programs."""
    call("logs.export", **arguments)


@logs.command("import")
@click.argument("source", metavar="FOLDER", type=click.Path(exists=True, path_type=Path))
def import_trace(**arguments: Any) -> None:
    """Import a trace.

    FOLDER holds the files that TORCH_TRACE=FOLDER has written, for any backend. They become a run.
    """
    call("logs.import_trace", **arguments)
