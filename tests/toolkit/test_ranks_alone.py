"""Ranks whose graphs communicate are run one by one, without the other ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_scripts import PARALLEL_NET, WRONG_SIN

Command = Callable[..., Any]

START = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""

FUNCTIONAL = """
import torch.distributed._functional_collectives as collectives

def f(x):
    total = collectives.all_reduce(torch.sin(x), "sum", dist.group.WORLD)
    return collectives.reduce_scatter_tensor(total * 2, "sum", 0, dist.group.WORLD)

x = torch.ones(4, 8) + rank
wanted, got = f(x), torch.compile(f, backend="tcdebug")(x)
"""

TENSOR_PARALLEL = f"""{PARALLEL_NET}
torch.manual_seed(0)
net, x = Net(), torch.randn(4, 8)
wanted = net(x)
mesh = init_device_mesh("cpu", (world,))
net = parallelize_module(net, mesh, plan)
got = torch.compile(net, backend="tcdebug")(x)
"""

END = """
dist.destroy_process_group()
raise SystemExit(0 if torch.allclose(wanted, got, atol=1e-4) else 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", [FUNCTIONAL, TENSOR_PARALLEL], ids=["functional", "tensor parallel"]
)
def test_a_graph_that_communicates_is_minimised_and_its_repro_needs_one_process(
    body: str, tcdebug: Command, python: Command, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(START + WRONG_SIN + body + END)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = tcdebug("bisect", "--json", *torchrun, "train.py")
    report = done.json
    assert done.status == 0, done.stderr
    assert report["status"] == "confirmed"
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sin.default"]
    assert any(note.startswith("rank 0 of 2 ran alone") for note in report["notes"])
    folder = Path(report["run_dir"])
    assert python(str(folder / "repro.py")).status == 1
    assert python(str(folder / "repro.py"), "--off=lower.aten.sin.default").status == 0
