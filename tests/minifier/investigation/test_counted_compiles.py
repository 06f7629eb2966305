"""What torch traces of a script that counts its compiles says why there are so many."""

from __future__ import annotations

from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import GraphBreak, Recompile
from tcdebug.minifier.investigation.eager_report import another_graphs


def test_each_recompile_and_graph_break_has_its_statement_and_its_reason(tmp_path: Path) -> None:
    script = tmp_path / "counts.py"
    script.write_text("def f(x, cfg):\n    return x + cfg.k\n")
    log = EventLog(tmp_path)
    log.emit(
        Recompile("0/0: cfg.k == 0"),
        user_loc={"filename": str(script), "line": 2, "name": "f"},
    )
    log.emit(GraphBreak("Failed to trace\n  print"), user_loc={})
    assert list(another_graphs(tmp_path)) == [
        (
            f"{script}:2: return x + cfg.k",
            f"Dynamo compiles this again, {script}:2: 0/0: cfg.k == 0",
        ),
        ("", "Dynamo ends a graph here: Failed to trace print"),
    ]
