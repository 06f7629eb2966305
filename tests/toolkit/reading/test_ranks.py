"""Groups of ranks, and the first rank and step that differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.display.ranks import ranks_text
from tcdebug.reading.ranks import RankComparison, compare_ranks
from tcdebug.reading.torch_files import found_or_imported
from tcdebug.report.page import render

Command = Callable[..., Any]

GATHER = """def forward(self, primals_1):
    # File: torch/x.py:179, code: y = torch.ops._c10d_functional.all_reduce(x, group)
    wait = torch.ops._c10d_functional.wait_tensor.default(primals_1);
    out = torch.ops._c10d_functional.all_gather_into_tensor.default(wait, 2, '0');
    total = torch.ops._c10d_functional.all_reduce.default(out, 'sum', '0');
    return (total.to("cuda:%d"),)
"""


def trace(folder: Path, rank: int, *records: tuple[dict[str, Any], str]) -> None:
    """Write the trace of a rank; each record is metadata and payload."""
    head = "V0102 03:04:05.00%04d 77 torch/x.py:1] "
    lines = [
        head % k + json.dumps({**metadata, "frame_id": k // 3, "frame_compile_id": 0})
        + "".join(f"\n\t{line}" for line in payload.splitlines())
        for k, (metadata, payload) in enumerate(records)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text("\n".join(lines) + "\n")


def graph(text: str, rank: int) -> tuple[dict[str, Any], str]:
    return {"inductor_post_grad_graph": {}}, text % rank


def cache(verdict: str) -> tuple[dict[str, Any], str]:
    return {"artifact": {"name": f"fx_graph_cache_{verdict}"}}, '{"key": "k"}'


def compared(folder: Path) -> RankComparison:
    run = found_or_imported(str(folder))
    return compare_ranks(run, run.events())


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_ranks_that_differ_only_in_their_device_are_one_group(tmp_path: Path) -> None:
    for rank in range(40):
        trace(tmp_path / "trace", rank, graph(GATHER, rank), cache("hit"))
    found = compared(tmp_path / "trace")
    (group,) = found.groups
    assert ranks_text(group.ranks) == "ranks 0-39"
    assert (group.compiles, group.caches) == (1, {"inductor hit": 1})
    assert group.collectives == ["all_gather_into_tensor(2, '0')", "all_reduce('sum', '0')"]
    assert (found.compiles, found.collectives) == (None, None)


def test_the_rank_that_misses_a_cache_is_named_with_the_step(tmp_path: Path) -> None:
    for rank in range(4):
        verdict = "miss" if rank == 2 else "hit"
        trace(tmp_path / "trace", rank, graph(GATHER, rank), cache(verdict))
    found = compared(tmp_path / "trace")
    assert [group.ranks for group in found.groups] == [[0, 1, 3], [2]]
    assert found.compiles is not None
    assert (found.compiles.rank, found.compiles.step) == (2, 2)
    assert found.compiles.here == "0/0 inductor: cache miss"
    assert found.compiles.most == "0/0 inductor: cache hit"
    assert found.compiles.most_ranks == [0, 1, 3]
    assert found.collectives is None


def test_another_order_of_collectives_is_named(tmp_path: Path) -> None:
    lines = GATHER.splitlines(keepends=True)
    swapped = "".join([*lines[:3], lines[4], lines[3], *lines[5:]])
    for rank in range(3):
        trace(tmp_path / "trace", rank, graph(swapped if rank == 1 else GATHER, rank))
    found = compared(tmp_path / "trace")
    assert found.collectives is not None
    assert (found.collectives.rank, found.collectives.step) == (1, 1)
    assert found.collectives.here == "all_reduce('sum', '0')"
    assert found.collectives.most == "all_gather_into_tensor(2, '0')"
    assert found.compiles is not None
    assert len(found.compiles.texts) == 2


def test_a_rank_that_stops_early_does_nothing_more(tmp_path: Path) -> None:
    for rank in range(3):
        second = [graph(GATHER, rank)] if rank else []
        trace(tmp_path / "trace", rank, graph(GATHER, rank), *second)
    found = compared(tmp_path / "trace")
    assert found.compiles is not None
    assert (found.compiles.rank, found.compiles.step) == (0, 2)
    assert found.compiles.here == "nothing more"


def test_the_command_and_the_report_accept_a_folder_of_traces(
    inside: Command, tmp_path: Path
) -> None:
    for rank in range(24):
        verdict = "miss" if rank == 20 else "hit"
        trace(tmp_path / "trace", rank, graph(GATHER, rank), cache(verdict))
    done = inside("logs", "ranks", "trace", "--json")
    assert (done.status, done.json["compiles"]["rank"]) == (1, 20)
    assert "compiles differ first at step 2 of rank 20" in inside("logs", "ranks", "trace").stdout
    page = render([found_or_imported("trace")])
    assert "ranks 0-19, 21-23</td>" in page
    assert "Compiles differ first at step 2 of rank 20:" in page


def test_one_rank_cannot_be_compared(inside: Command, tmp_path: Path) -> None:
    trace(tmp_path / "trace", 0, graph(GATHER, 0))
    done = inside("logs", "ranks", "trace")
    assert done.status == 2
    assert "has events of 1 rank" in done.stderr
