"""Import of TORCH_TRACE files into a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.reading.run_dir import read
from tcdebug.reading.torch_files import NoTrace, import_files, trace_files

Command = Callable[..., Any]

SCRIPT = """
import torch
@torch.compile(backend="aot_eager")
def f(x, n):
    y = x * n
    print()
    return y.relu()
f(torch.ones(3), 2)
f(torch.ones(3), 3)
"""

HEAD = "V0102 03:04:05.000006 77 torch/x.py:1] "


def test_a_torch_trace_is_imported_as_a_run(tcdebug: Command, python: Command,
                                              tmp_path: Path) -> None:  # fmt: skip
    (tmp_path / "script.py").write_text(SCRIPT)
    assert python("script.py", TORCH_TRACE=str(tmp_path / "trace")).status == 0
    done = tcdebug("logs", "import", "trace")
    assert done.status == 0, done.stderr
    summary = tcdebug("logs", "summary", "--json", done.stdout.strip()).json
    assert [b["where"].rpartition("/")[2] for b in summary["breaks"]] == ["script.py:6"]
    assert summary["recompiles"][0]["changed"] == ["L['n']: 2 -> 3 (scalar change)"]
    assert {"dynamo", "aot_autograd", "backend"} <= {s["stage"] for s in summary["stages"]}
    assert summary["compile_seconds"] > 0


def test_times_and_processes_are_those_of_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "dedicated_log_torch_trace_rank_3_abc.log"
    trace.write_text(
        HEAD + '{"artifact": {"name": "recompile_reasons", "encoding": "json"}, "frame_id": 0, '
        '"frame_compile_id": 1, "attempt": 0, "has_payload": "x"}\n\t0/0: n == 2\n'
        "no record at all\n"
        + HEAD.replace("05.000006", "06.500006")
        + '{"artifact": {"name": "fx_graph_cache_hit", "encoding": "json"}, "frame_id": 0, '
        '"frame_compile_id": 1, "attempt": 0}\n\t{"key": "k"}\n' + HEAD + '{"torn'
    )
    (tmp_path / "run").mkdir()
    assert import_files([trace], EventLog(tmp_path / "run", own=True)) == (2, 1.5)
    first, second = read(tmp_path / "run" / "events.jsonl")
    assert (first["event"], first["compile_id"]) == ("recompile", "0/1")
    assert (first["pid"], first["rank"], first["t_ns"]) == (77, 3, 0)
    assert first["ts"].endswith("04:05.000006Z")
    assert second["t_ns"] == 1_500_000_000
    assert second["data"] == {"verdict": "hit", "key": "k", "seconds": 0.0}


def test_a_folder_without_a_trace_is_refused(tcdebug: Command, tmp_path: Path) -> None:
    with pytest.raises(NoTrace):
        trace_files(tmp_path)
    done = tcdebug("logs", "import", ".")
    assert done.status == 2
    assert "TORCH_TRACE=trace" in done.stderr
    assert not list(tmp_path.glob(".tcdebug/2*"))
