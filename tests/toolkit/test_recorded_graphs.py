"""What the events of a search say about the graphs of a script."""

from __future__ import annotations

from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_folder import create
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.processes.job import NOT_BY_ITSELF
from tcdebug.supervision.recorded_graphs import fallbacks


def test_a_graph_that_was_searched_is_not_called_a_part_of_the_script_only(tmp_path: Path) -> None:
    folder = create("bisect", tmp_path)
    log = EventLog(folder)
    log.emit(Fallback(NOT_BY_ITSELF.format(1), "it raises in eager"))
    log.emit(Fallback("minimising goes without its step cut_nodes", "it raises in eager"))
    step = "minimising goes without its step cut_nodes"
    assert fallbacks(folder) == [f"{NOT_BY_ITSELF.format(1)}; {step}: it raises in eager"]
    assert fallbacks(folder, searched=1) == [f"{step}: it raises in eager"]
