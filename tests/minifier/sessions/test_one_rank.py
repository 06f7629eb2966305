"""One rank of a distributed job, run as a single process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.job import Rank, saved_ranks
from tcdebug.minifier.sessions import one_rank as module
from tcdebug.minifier.sessions.one_rank import NoFakeGroup, one_rank

SECOND = Rank("train.py", ["--steps", "2"], {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})


@pytest.fixture
def second_of_four() -> Iterator[None]:
    """A process group that the script would create with gloo."""
    with one_rank(SECOND, EventLog(None)):
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


def test_it_has_the_place_of_the_rank_whatever_the_script_asks_for(second_of_four: None) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (1, 4, "fake")


def test_what_other_ranks_would_send_is_what_it_sends_itself(second_of_four: None) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert collectives.all_reduce(x, "sum", dist.group.WORLD).tolist() == [1.0, 2.0, 3.0, 4.0]
    gathered = collectives.all_gather_tensor(x[:1], 0, dist.group.WORLD)
    assert gathered.tolist() == [1.0, 1.0, 1.0, 1.0]
    mine = collectives.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)
    assert mine.tolist() == [2.0]
    dist.all_reduce(x)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_groups_with_a_backend_and_meshes_do_not_wait_for_other_ranks(second_of_four: None) -> None:
    pair = dist.new_group([0, 1], backend="gloo")
    assert (dist.get_rank(pair), dist.get_backend(pair)) == (1, "fake")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    assert list(mesh.get_coordinate() or ()) == [0, 1]


def test_process_groups_are_real_again_afterwards() -> None:
    with one_rank(SECOND, EventLog(None)):
        pass
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")
    finally:
        dist.destroy_process_group()


class LeavesResultsUnwritten:
    """The fake group of a version of torch that derives no results."""

    @classmethod
    def _create_internal(cls, rank: int, size: int) -> LeavesResultsUnwritten:
        return cls()

    def _reduce_scatter_base(self, received: torch.Tensor, sent: torch.Tensor) -> Any:
        return self

    def _allgather_base(self, received: torch.Tensor, sent: torch.Tensor) -> Any:
        return self

    def wait(self) -> None:
        """Return at once."""


def test_a_fake_group_that_leaves_results_unwritten_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch._C._distributed_c10d.FakeProcessGroup", LeavesResultsUnwritten)
    with pytest.raises(NoFakeGroup, match="unwritten"):
        module.check_results_are_defined()


def test_ranks_are_found_in_the_run_folder_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_ranks(tmp_path) == []
    for name, value in SECOND.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr(sys, "argv", ["train.py", "--steps", "2"])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"))
    second = Rank.of_this_process()
    assert second is not None
    assert (second.rank, second.world_size, str(second)) == (1, 4, "rank 1 of 4")
    assert second.args == ["--steps", "2"]
    assert second.variables["MASTER_PORT"] == "29500"
    first = Rank("train.py", [], {"RANK": "0", "WORLD_SIZE": "4"})
    second.save(tmp_path)
    first.save(tmp_path)
    assert saved_ranks(tmp_path) == [first, second]


def test_a_process_that_torchrun_did_not_start_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert Rank.of_this_process() is None
