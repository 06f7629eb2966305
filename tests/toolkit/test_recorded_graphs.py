"""What the events of a search say about the graphs of a script."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import WorkerStart
from tcdebug.compiler.events.run_folder import create
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import GraphRecorded
from tcdebug.minifier.capture.watching.calls import first_call_noted
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import NOT_BY_ITSELF
from tcdebug.supervision.recorded_graphs import NO_GRAPH, fallbacks, notes_of_run, why_no_graph


def test_a_graph_that_was_searched_is_not_called_a_part_of_the_script_only(tmp_path: Path) -> None:
    folder = create("bisect", tmp_path)
    log = EventLog(folder)
    log.emit(Fallback(NOT_BY_ITSELF.format(1), "it raises in eager"))
    log.emit(Fallback("minimising goes without its step cut_nodes", "it raises in eager"))
    step = "minimising goes without its step cut_nodes"
    assert fallbacks(folder) == [f"{NOT_BY_ITSELF.format(1)}; {step}: it raises in eager"]
    assert fallbacks(folder, searched=1) == [f"{step}: it raises in eager"]


def test_a_failing_script_has_a_note_on_inputs_of_another_dtype_than_was_captured(
    tmp_path: Path,
) -> None:
    folder = create("bisect", tmp_path)
    log = EventLog(folder)
    text = "drawn is torch.float64 and was captured as torch.float32"
    log.emit(GraphRecorded(0, 3, 0))
    for call in (0, 1):
        log.emit(GraphRecorded(1, 3, call, text))
    failing = Report("confirmed", failure=Outcome(Kind.EXCEPTION, "script"))
    (note,) = notes_of_run(folder, failing)
    assert note.startswith(
        "Dynamo calls graph 1 with another dtype than it captured: drawn is torch.f"
    )
    assert notes_of_run(folder, Report("no_failure")) == []


def test_a_note_says_which_processes_called_compiled_functions_without_a_graph(
    tmp_path: Path,
) -> None:
    folder = create("bisect", tmp_path)
    log = EventLog(folder)
    assert why_no_graph(folder) == NO_GRAPH
    log.emit(WorkerStart("child SpawnProcess-1", os.getpid()))
    assert why_no_graph(folder) == NO_GRAPH
    with first_call_noted(log):
        for size in (2, 3):
            torch.compile(torch.compiler.disable(torch.sin))(torch.ones(size))
    assert why_no_graph(folder) == (
        "compiled functions were called by SpawnProcess-1, but Dynamo gave no graph to a backend: "
        "`tcdebug explain` shows the graph breaks in them, if there are any"
    )
    assert sum("compiled.called" in f.read_text() for f in folder.glob("events*.jsonl")) == 1
