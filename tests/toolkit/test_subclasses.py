"""Faults in graphs of tensor subclasses: the script defines the class, or torch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_scripts import PARALLEL_NET, WRONG_SIN
from torch_versions import needs_torch

Command = Callable[..., Any]
Script = Callable[[str], str]

SIN = "lower.aten.sin.default"

SECOND_SIN = """
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]

def sin(site, x):
    graph = site.node.graph
    first = next(n for n in graph.nodes if n.target is torch.ops.aten.sin.default)
    return right(site, x if site.node is first else right(site, x))

REGISTRY.lowerings[torch.ops.aten.sin.default] = sin
"""
"""The second sine of a graph is taken twice, so that no graph with one sine fails."""

JAGGED = """
import torch
x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
y = x * 2
f = lambda x, y: torch.sin(x + y).relu()
torch.compile(f, backend="tcdebug")(x, y)
"""

PAIRS = """
import torch

class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tree_map = torch.utils._pytree.tree_map_only
        a, b = (
            func(*tree_map(cls, part, args), **(kwargs or {}))
            for part in (lambda pair: pair.a, lambda pair: pair.b)
        )
        return Pair(a, b) if isinstance(a, torch.Tensor) else a

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(Pair(torch.randn(8, 8), torch.randn(8, 8)))

    def forward(self, x):
        return torch.sin(x @ self.weight + 1).relu()

torch.compile(Net(), backend="tcdebug")(torch.randn(4, 8))
"""

STARTS = """
import subprocess, sys, tempfile
store = tempfile.mktemp()
ranks = [subprocess.Popen([sys.executable, "worker.py", str(rank), store]) for rank in range(2)]
sys.exit(max([rank.wait() for rank in ranks]))
"""

WORKER = f"""
import sys
import torch
import torch.distributed as dist
{PARALLEL_NET}
rank, store = int(sys.argv[1]), f"file://{{sys.argv[2]}}"
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
net = parallelize_module(Net(), init_device_mesh("cpu", (2,)), plan)
torch.compile(net, backend="tcdebug")(torch.randn(4, 8))
dist.destroy_process_group()
"""


def planted(script: str, plant: str) -> str:
    """Return a script that plants a fault after its first import."""
    return script.replace("import torch\n", f"import torch\n{plant}", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "class_name"),
    [
        pytest.param(planted(JAGGED, WRONG_SIN), "", id="jagged"),
        pytest.param(
            planted(PAIRS, SECOND_SIN),
            "sys.modules['__main__'].Pair",
            id="class of the script",
            marks=needs_torch("2.12", "AOTAutograd cannot trace it: it guards on an unbacked size"),
        ),
    ],
)
def test_a_wrong_operator_is_minimised_to_one_node_and_its_repro_runs_in_one_process(
    text: str, class_name: str, tcdebug: Command, python: Command, script: Script
) -> None:
    repro = confirmed_repro(tcdebug("bisect", "--json", script(text)), python)
    inputs = Path(repro).read_text().partition("def inputs(")[2]
    assert class_name in inputs
    assert ("tensor_unflatten" in inputs) == bool(class_name)


@pytest.mark.slow
def test_a_rank_of_tensor_parallelism_is_searched_beside_the_others(
    tcdebug: Command, python: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(planted(WORKER, WRONG_SIN))
    done = tcdebug("bisect", "--json", script(STARTS))
    confirmed_repro(done, python)
    assert any(
        note.startswith("the graph communicates, and was judged as rank")
        for note in done.json["notes"]
    )


def confirmed_repro(done: Any, python: Command) -> str:
    """Return the repro of a wrong sine, alone, which one process runs."""
    assert done.status == 0, done.stderr
    assert [c["unit"] for c in done.json["culprits"]] == [SIN]
    assert done.json["nodes_after"] == 1
    repro: str = done.json["repro"]
    assert python(repro).status == 1
    assert python(repro, f"--off={SIN}").status == 0
    return repro
