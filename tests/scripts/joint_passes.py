"""A training step in the manner of torchtitan, with a fault in one of its passes: KIND ENTRY.

The model is exported as a joint graph of forward and backward, which a list of passes rewrites
before it is partitioned. ENTRY is `compile` if the pipeline is a backend of torch.compile, and
`direct` if the script calls it itself.
"""

import contextlib
import sys
from pathlib import Path

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import (
    aot_compile_joint_with_descriptors,
    aot_export_joint_with_descriptors,
)

import tcdebug

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from planted import misbehave

aten = torch.ops.aten
KIND = sys.argv[1]


@tcdebug.gated("remove_detach")
def remove_detach(joint: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in joint.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        joint.graph.erase_node(node)
    return joint


@tcdebug.gated("fast_tanh")
def fast_tanh(joint: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in joint.graph.find_nodes(op="call_function", target=aten.tanh.default):
        misbehave(KIND)
        node.target = aten.sin.default
    return joint


@tcdebug.gated("lower_seqs", required=True)
def recompiled(joint: torch.fx.GraphModule) -> torch.fx.GraphModule:
    joint.graph.lint()
    joint.recompile()
    return joint


PASSES = (remove_detach, fast_tanh, recompiled)


def rewritten(joint):
    for one in PASSES:
        joint = one(joint)
    return joint


def partition(joint, inputs, **kwargs):
    return min_cut_rematerialization_partition(rewritten(joint), inputs, **kwargs)


def run_graph(graph, inputs):
    return make_boxed_func(graph.forward)


backend = aot_autograd(fw_compiler=run_graph, partition_fn=partition)


def compiled_directly(model, x):
    """The model as a function of its input, with the passes applied to its joint graph."""
    with contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, model, (x,))
        rewritten(joint.graph_module)
        call = aot_compile_joint_with_descriptors(joint, fw_compiler=run_graph)
    weights = [*model.parameters(), *model.buffers()]
    return lambda x: call(*weights, x)


def main(entry):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    if entry == "compile":
        step = torch.compile(model, backend=backend)
    else:
        step = compiled_directly(model, x)
    result = step(x)
    result.square().mean().backward()
    torch.testing.assert_close(result, model(x))


if __name__ == "__main__":
    main(sys.argv[2])
