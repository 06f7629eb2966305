"""Shows what was optimised, what was not, and the source lines of the kernels."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.summary import size
from tcdebug.display.text import short_place
from tcdebug.reading.run_dir import Record
from tcdebug.reading.summary import graph_name, place

VERDICTS = {
    "missed": "[warn]missed[/], with the bytes that it would save",
    "passed": "[good]passed[/], with the bytes that it saves",
    "analysis": "[dim]analysis[/]",
}


def show_remarks(remarks: Sequence[Record], kernels: Sequence[Record]) -> None:
    """Print the remarks by verdict, largest first, then the origins of the kernels."""
    out = results()
    for verdict, title in VERDICTS.items():
        rows = [r for r in remarks if r["data"]["verdict"] == verdict]
        if rows:
            out.print(title)
        for row in sorted(rows, key=lambda r: -r["data"]["moved"]):
            moved = size(row["data"]["moved"]) if row["data"]["moved"] else ""
            out.print(
                f"  {moved:>9}  [path]{short_place(place(row))}[/] "
                f"{escape(row['data']['message'])} [dim]{graph_name(row)}[/]"
            )
    for kernel in kernels:
        out.print(f"[unit]{kernel['data']['name']}[/] [dim]{graph_name(kernel)}[/] comes from")
        for node, aten, op, where in kernel["data"]["origins"]:
            via = "" if node == aten else f" via {aten}"
            out.print(f"  {escape(node)}{escape(via)} [dim]{op}[/] [path]{short_place(where)}[/]")
