"""Explanations of handwritten runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written import line

from tcdebug.reading.explanation import explain, source_line

Make = Callable[..., Any]


def compiled(compile_id: str, frame: str, seconds: float, **more: Any) -> dict[str, Any]:
    """A compile of a frame of /m.py."""
    data = {
        "frame": frame, "backward": False, "nodes": 3, "guards": 5, "breaks": 0,
        "seconds": seconds, "phases": {}, "failure": "", **more,
    }  # fmt: skip
    here = {} if more.get("backward") else {"filename": "/m.py", "line": 2, "name": frame}
    return line("compile.metrics", 1, data, compile_id=compile_id, user_loc=here)


def test_a_frame_costs_all_of_its_graphs_and_their_backward(make: Make) -> None:
    run = make(
        compiled("0/0", "f", 1.0),
        compiled("0/1", "f", 0.5),
        compiled("0/0", "", 0.25, backward=True),
        compiled("1/0", "g", 2.0),
    )
    frames = explain(run, run.events()).frames
    assert [(f.name, f.compiles, f.seconds) for f in frames] == [("g", 1, 2.0), ("f", 2, 1.75)]


def test_the_cost_of_a_graph_break_is_that_of_the_frames_after_it(make: Make) -> None:
    here = {"filename": "/m.py", "line": 5, "name": "f"}
    run = make(
        line("graph.break", 1, {"reason": "print"}, user_loc=here),
        compiled("0/0", "f", 1.0),
        compiled("1/0", "torch_dynamo_resume_in_f_at_5", 0.5),
        compiled("2/0", "torch_dynamo_resume_in_f_at_50", 4.0),
    )
    (cost,) = explain(run, run.events()).breaks
    assert (cost.graphs, cost.seconds) == (1, 0.5)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6", "mark_dynamic"),
        ("0/0: tensor 'y' requires_grad mismatch. expected requires_grad=1", "requires_grad"),
        ("0/0: n == 2", "dynamic=True"),
        ("0/0: something torch never said", ""),
    ],
)
def test_the_remedy_for_a_recompile_depends_on_its_reason(
    make: Make, reason: str, advice: str
) -> None:
    run = make(line("recompile", 1, {"reason": reason}, compile_id="0/1"))
    (cost,) = explain(run, run.events()).recompiles
    assert [advice in remedy for remedy in cost.advice] == [True] * bool(advice)


def test_numbers_on_which_a_graph_is_specialised_are_reported(make: Make) -> None:
    guards = ["EQUALS_MATCH: L['n'] == 2", "TENSOR_MATCH: L['x'] is float32"]
    event = line("guard.summary", 1, {"total": 9, "guards": guards, "artifact": ""})
    run = make(event, event)
    found = explain(run, run.events())
    assert found.constants == ["L['n'] == 2"]
    assert found.guards == 18


def test_a_line_is_read_from_its_file_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("a = 1\n    b = 2\n")
    assert source_line(f"{tmp_path}/m.py:2") == "b = 2"
    assert source_line("/no/such/file.py:2") == ""
