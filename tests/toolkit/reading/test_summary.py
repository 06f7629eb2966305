"""Summaries, selections and exports of handwritten runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from written import line, stage

from tcdebug.commands.logs import export as logs_export
from tcdebug.reading.breaks import read_break
from tcdebug.reading.export import chrome_trace, csv_table, parquet
from tcdebug.reading.filters import BadLine, Selection, parse_line
from tcdebug.reading.spans import spans
from tcdebug.reading.summary import summarise

Make = Callable[..., Any]

REASON = """Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`
    and its like.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print

 For more details about this graph break, please visit: https://example.org/gb/gb0059.html"""

HERE = {"filename": "/home/me/model.py", "line": 12, "name": "f"}


def test_a_stage_has_the_seconds_that_no_stage_inside_of_it_has(make: Make) -> None:
    run = make(stage("passes", 1.5, 0.25), stage("lower", 1.75, 0.25), stage("aot", 2.0, 1.0))
    times = {s.stage: s.seconds for s in summarise(run, run.events()).stages}
    assert times == {"aot": 0.5, "passes": 0.25, "lower": 0.25}


def test_stages_of_two_processes_at_one_time_are_not_inside_each_other(make: Make) -> None:
    run = make(stage("aot", 2.0, 1.0), stage("lower", 1.9, 0.5, pid=8))
    assert {s.stage: s.seconds for s in summarise(run, run.events()).stages} == {
        "aot": 1.0, "lower": 0.5,
    }  # fmt: skip


def test_compile_time_is_the_union_of_stages_of_all_threads(make: Make) -> None:
    run = make(stage("codegen", 2.0, 1.0), stage("a", 2.5, 1.0), stage("b", 2.75, 1.0))
    assert summarise(run, run.events()).compile_seconds == 1.75


def test_kernels_come_by_bytes_and_calls_of_aten_by_number(make: Make) -> None:
    kernel = {"language": "c++", "computes": ["a"], "source": ""}
    extern = {"op": "aten.mm", "node": "mm", "reason": "no loops"}
    run = make(
        line("kernel", 1, {**kernel, "name": "small", "moved": 10}),
        line("kernel", 1, {**kernel, "name": "large", "moved": 20}, compile_id="0/0"),
        line("extern", 1, {**extern, "op": "aten.sort"}),
        line("extern", 1, extern),
        line("extern", 1, extern),
    )
    summary = summarise(run, run.events())
    assert [k.name for k in summary.kernels] == ["large", "small"]
    assert [(e.op, e.calls) for e in summary.externs] == [("aten.mm", 2), ("aten.sort", 1)]


def test_a_repeated_graph_break_is_listed_once_with_its_count(make: Make) -> None:
    run = make(*[line("graph.break", 1, {"reason": REASON}, user_loc=HERE) for _ in range(3)])
    (found,) = summarise(run, run.events()).breaks
    assert found.where == "/home/me/model.py:12"
    assert found.what == "Failed to trace builtin operator"
    assert found.hints == ["Avoid calling builtin `print` and its like."]
    assert (found.id, found.times) == ("gb0059", 3)


def test_an_unknown_form_of_a_reason_is_kept_unchanged() -> None:
    assert read_break("torch.* op returned a bool", "f.py:1").what == "torch.* op returned a bool"


def test_a_recompile_has_the_value_that_changed_and_what_it_cost(make: Make) -> None:
    metrics = {"frame": "f", "backward": False, "nodes": 3, "guards": 5, "breaks": 0}
    run = make(
        line("recompile", 1, {"reason": "0/0: n == 2 # y = x * n"}, compile_id="0/1"),
        line(
            "size.changed", 1,
            {"name": "L['n']", "reason": "scalar change", "before": "2", "after": "3"},
            compile_id="0/1",
        ),
        line(
            "compile.metrics", 2, {**metrics, "seconds": 0.5, "phases": {}, "failure": ""},
            compile_id="0/1", user_loc=HERE,
        ),
    )  # fmt: skip
    (row,) = summarise(run, run.events()).recompiles
    assert row.reasons == ["0/0: n == 2"]
    assert row.changed == ["L['n']: 2 -> 3 (scalar change)"]
    assert (row.frame, row.where, row.seconds) == ("f", "/home/me/model.py:12", 0.5)


@pytest.mark.parametrize(
    ("given", "fits"),
    [("model.py:12", True), ("me/model.py:12", True), ("el.py:12", False), ("model.py:13", False)],
)
def test_a_line_is_asked_for_by_the_end_of_its_path(given: str, fits: bool) -> None:
    record = line("graph.break", 1, {}, user_loc=HERE)
    assert Selection(line=parse_line(given)).fits(record) is fits


def test_a_kernel_is_found_by_the_lines_that_it_comes_from() -> None:
    origins = [["buf0", "relu", "aten.relu.default", "/home/me/model.py:12"]]
    record = line("kernel", 1, {"origins": origins})
    assert Selection(line=("model.py", 12)).fits(record)


def test_an_invalid_line_is_refused() -> None:
    with pytest.raises(BadLine, match=r"is not FILE:N, such as model\.py:12"):
        parse_line("model.py")


def test_a_chrome_trace_has_complete_events_that_nest(make: Make) -> None:
    run = make(stage("lower", 1.75, 0.25), stage("aot", 2.0, 1.0))
    events = json.loads(chrome_trace(run, run.events()))["traceEvents"]
    assert [(e["name"], e["ph"], e["ts"], e["dur"]) for e in events] == [
        ("aot", "X", 1e6, 1e6), ("lower", "X", 1.5e6, 0.25e6),
    ]  # fmt: skip
    assert {e["pid"] for e in events} == {7}


def test_a_table_has_one_row_per_event(make: Make) -> None:
    run = make(line("graph.break", 1, {"reason": "because, of"}, user_loc=HERE))
    (row,) = csv.DictReader(io.StringIO(csv_table(run.events())))
    assert (row["event"], row["line"]) == ("graph.break", "12")
    assert json.loads(row["data"]) == {"reason": "because, of"}


def test_a_table_for_data_frames_has_types(make: Make) -> None:
    tables = pytest.importorskip("pyarrow.parquet", reason="pip install 'tcdebug[export]'")
    run = make(stage("lower", 1.75, 0.25), line("graph.break", 2, {"reason": "x"}, user_loc=HERE))
    table = tables.read_table(io.BytesIO(parquet(run.events())))
    assert table.column("seconds").to_pylist() == [0.25, None]
    assert table.column("line").to_pylist() == [None, 12]


def test_a_table_for_data_frames_asks_for_its_package_and_a_file(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs_export, "find_spec", lambda name: None)
    run = str(make(stage("lower", 1.75, 0.25)).path)
    assert logs_export.run(run_name=run, form="parquet", output=tmp_path / "a") == 2
    assert "pip install 'tcdebug[export]'" in capsys.readouterr().err
    with pytest.raises(click.UsageError, match="-o FILE"):
        logs_export.run(run_name=run, form="parquet", output=None)


def test_spans_are_in_the_order_of_their_starts(make: Make) -> None:
    run = make(stage("inner", 1.5, 0.25), stage("outer", 2.0, 1.0))
    assert [s.name for s in spans(run.events())] == ["outer", "inner"]
