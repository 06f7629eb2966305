"""One rank of a distributed job, run as a single process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from captured import captured
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.job import Rank, saved_ranks
from tcdebug.minifier.repros.fake_group import NoFakeGroup, group_of
from tcdebug.minifier.repros.script_setup import Script, script_setup
from tcdebug.minifier.sessions.one_rank import collectives_replaced, one_rank

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


def test_a_single_rank_receives_what_it_sends(second_of_four: None) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert collectives.all_reduce(x, "sum", dist.group.WORLD).tolist() == [1.0, 2.0, 3.0, 4.0]
    gathered = collectives.all_gather_tensor(x[:1], 0, dist.group.WORLD)
    assert gathered.tolist() == [1.0, 1.0, 1.0, 1.0]
    dist.all_reduce(x)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_reduce_scatter_returns_the_part_of_this_rank(second_of_four: None) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    mine = collectives.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)
    assert mine.tolist() == [2.0]


def test_groups_with_a_backend_and_meshes_do_not_wait_for_other_ranks(second_of_four: None) -> None:
    pair = dist.new_group([0, 1], backend="gloo")
    assert (dist.get_rank(pair), dist.get_backend(pair)) == (1, "fake")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    assert list(mesh.get_coordinate() or ()) == [0, 1]


def test_the_futures_of_collectives_hold_what_this_rank_has(second_of_four: None) -> None:
    x = torch.tensor([1.0, 2.0])
    for work in (
        dist.all_reduce(x, async_op=True),
        dist.broadcast(x, src=0, async_op=True),
        dist.reduce(x, dst=0, async_op=True),
    ):
        assert work is not None
        (held,) = work.get_future().value()
        assert held.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("hook", [None, fp16_compress_hook], ids=["no hook", "hook"])
def test_distributed_data_parallel_divides_gradients_of_this_rank_by_the_number_of_ranks(
    hook: Any, second_of_four: None
) -> None:
    linear = torch.nn.Linear(3, 2)
    model = torch.nn.parallel.DistributedDataParallel(linear)
    if hook is not None:
        model.register_comm_hook(None, hook)
    for _ in range(2):
        linear.zero_grad()
        model(torch.ones(5, 3)).sum().backward()
    assert linear.weight.grad is not None
    assert linear.weight.grad.tolist() == [[1.25] * 3] * 2


def test_process_groups_are_real_again_afterwards() -> None:
    with one_rank(SECOND, EventLog(None)):
        pass
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")
    finally:
        dist.destroy_process_group()


class WritesNothing:
    """The fake group of a version of torch that derives no results."""

    @classmethod
    def _create_internal(cls, rank: int, size: int) -> WritesNothing:
        return cls()

    def _reduce_scatter_base(self, received: torch.Tensor, sent: torch.Tensor) -> Any:
        return self

    def _allgather_base(self, received: torch.Tensor, sent: torch.Tensor) -> Any:
        return self

    def wait(self) -> None:
        """Return at once."""


class GathersOnly(WritesNothing):
    """The fake group of torch 2.11."""

    def _allgather_base(self, received: torch.Tensor, sent: torch.Tensor) -> Any:
        received.copy_(sent.expand(2))
        return self


def test_a_fake_group_without_any_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._C._distributed_c10d.FakeProcessGroup", WritesNothing)
    with pytest.raises(NoFakeGroup, match="unwritten"), one_rank(SECOND, EventLog(None)):
        pass


@pytest.fixture
def written_by_tcdebug(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The second of four ranks under a torch whose fake group writes only what it gathers."""
    monkeypatch.setattr("torch._C._distributed_c10d.FakeProcessGroup", GathersOnly)
    with one_rank(SECOND, EventLog(None)):
        monkeypatch.undo()
        dist.init_process_group("gloo")
        try:
            yield
        finally:
            dist.destroy_process_group()


def test_results_that_an_older_torch_leaves_unwritten_are_written(written_by_tcdebug: None) -> None:
    x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(1)
    parts = [x[k : k + 1].clone() for k in range(4)]
    dist.reduce_scatter_tensor(out, x)
    assert out.tolist() == [2.0]
    dist.reduce_scatter(out.zero_(), parts)
    assert out.tolist() == [2.0]
    scattered = collectives.reduce_scatter_tensor(x.clone(), "sum", 0, dist.group.WORLD)
    assert scattered.tolist() == [2.0]
    swapped = torch.zeros(4)
    dist.all_to_all_single(swapped, x)
    assert swapped.tolist() == [1.0, 2.0, 3.0, 4.0]
    uneven = torch.zeros(6)
    dist.all_to_all_single(uneven, x, [2, 2, 1, 1], [1, 1, 1, 1])
    assert uneven.tolist() == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0]
    received = [torch.zeros(1) for _ in range(4)]
    dist.all_to_all(received, parts)
    assert torch.cat(received).tolist() == [1.0, 2.0, 3.0, 4.0]
    dist.scatter(out.zero_(), parts, src=1)
    assert out.tolist() == [2.0]
    dist.scatter(out.fill_(9.0), None, src=0)  # only the root has something to scatter
    assert out.tolist() == [9.0]
    dist.gather(parts[2], received, dst=1)
    assert torch.cat(received).tolist() == [3.0, 3.0, 3.0, 3.0]
    dist.reduce_scatter_tensor(out, x, async_op=True).wait()
    assert out.tolist() == [2.0]


TRAINING = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
linear = torch.nn.Linear(3, 2)
model = torch.nn.parallel.DistributedDataParallel(linear)
model(torch.ones(5, 3)).sum().backward()
print(linear.weight.grad.tolist())
torch.compile(torch.sin)(torch.ones(4))
"""
REPRO = """
import contextlib, importlib, os, sys, torch
CALL = {"backend": None}
"""


@pytest.mark.parametrize("group", ["this torch", "an older torch"])
def test_the_set_up_of_a_repro_runs_a_backward_of_distributed_data_parallel(
    group: str, warm_python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, repro = tmp_path / "train.py", tmp_path / "out" / "repro.py"
    script.write_text(TRAINING)
    repro.parent.mkdir()
    if group == "an older torch":
        monkeypatch.setattr("torch._C._distributed_c10d.FakeProcessGroup", GathersOnly)
    text = script_setup(Script(str(script)), 0, repro.parent, rank=SECOND)
    repro.write_text(f"{REPRO}{text}\nset_up(lambda: print('reached'))\n")
    done = subprocess.run(
        [warm_python, str(repro)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.splitlines() == [str([[1.25] * 3] * 2), "reached"], done.stderr


def test_ranks_are_found_in_the_run_folder_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_ranks(tmp_path) == []
    for name, value in SECOND.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr(sys, "argv", ["train.py", "--steps", "2"])
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False
    )
    second = Rank.of_this_process()
    assert second is not None
    assert (second.rank, second.world_size, str(second)) == (1, 4, "rank 1 of 4")
    assert second.args == ["--steps", "2"]
    assert second.variables["MASTER_PORT"] == "29500"
    first = Rank("train.py", [], {"RANK": "0", "WORLD_SIZE": "4"})
    second.save(tmp_path)
    first.save(tmp_path)
    assert saved_ranks(tmp_path) == [first, second]


def test_a_process_that_torchrun_did_not_start_is_not_a_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert Rank.of_this_process() is None


@pytest.fixture
def alone() -> Iterator[None]:
    """A real process group of one rank, and no other."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def communicating(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x, "sum", "0").relu()


def test_collectives_of_a_real_group_return_at_once_while_they_are_replaced(alone: None) -> None:
    x = torch.tensor([1.0, 2.0])
    outs = [torch.zeros(2), torch.zeros(2)]
    with collectives_replaced(group_of(captured(communicating, x))) as replaced:
        assert replaced
        dist.all_gather(outs, x)  # of two ranks, though the group has one
        dist.barrier()
    assert [out.tolist() for out in outs] == [[1.0, 2.0], [1.0, 2.0]]
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_gather(outs, x)


def test_only_a_graph_that_communicates_needs_a_group(alone: None) -> None:
    x = torch.ones(2)
    group = group_of(captured(communicating, x))
    assert group is not None
    assert (group.rank, group.world_size) == (0, 1)
    assert group_of(captured(torch.relu, x)) is None
    mesh = init_device_mesh("cpu", (1,))
    assert group_of(captured(torch.relu, DTensor.from_local(x, mesh))) is not None


def test_the_fake_group_of_a_script_is_left_as_it_is(second_of_four: None) -> None:
    with collectives_replaced(SECOND) as replaced:
        assert not replaced
