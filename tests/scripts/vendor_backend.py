"""A vendor's backend that interprets graphs, with a fault in one of its passes: KIND.

It uses neither AOTAutograd nor inductor. Its passes return whether they changed the graph.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import tcdebug

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from planted import misbehave

KIND = sys.argv[1]


@tcdebug.gated("vendor.double")
def double(graph: torch.fx.Graph) -> bool:
    changed = False
    for node in graph.nodes:
        if node.op == "call_function" and node.args[:1] == node.args[1:2] and "add" in node.name:
            node.target, node.args, changed = torch.mul, (node.args[0], 2), True
    return changed


@tcdebug.gated("vendor.tanh")
def approximate_tanh(graph: torch.fx.Graph) -> bool:
    nodes = graph.find_nodes(op="call_function", target=torch.tanh)
    for node in nodes:
        misbehave(KIND)
        node.target = torch.sin
    return bool(nodes)


def to_device(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        node.meta["on_device"] = True


class Runner(torch.fx.Interpreter):
    def run_node(self, n):
        if not n.meta.get("on_device"):
            raise RuntimeError(f"{n} is not on the device")
        return super().run_node(n)


def vendor(module, inputs):
    with tcdebug.gated("vendor.fold", graph=module) as wanted:
        if wanted:
            module.graph.eliminate_dead_code()
    for one in (double, approximate_tanh):
        one(module.graph)
    # left out, every graph fails in another way
    tcdebug.gated("vendor.to_device")(to_device)(module.graph)
    module.recompile()
    return Runner(module).run


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))

    def step(x):
        y = torch.tanh(model(x) + 0.1)
        return torch.sigmoid(y + y) * x.sum(-1, keepdim=True)

    compiled = torch.compile(step, backend=vendor)
    compiled(torch.randn(3, 4)).sum().backward()


if __name__ == "__main__":
    main()
