"""A pass: relu(relu(x)) becomes relu(x)."""
# ruff: noqa: T201

import torch
from torch import fx

import tcdebug
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.passes.replacement import same_tensor

relu = torch.ops.aten.relu.default


def repeated_relu(graph: fx.Graph) -> bool:
    """Remove a relu of a relu, since the inner one leaves nothing negative."""
    returned = set(graph.output_node().all_input_nodes)
    changed = False
    for node in list(graph.nodes):
        source = node.args[0] if node.args else None
        if node.target is not relu or not isinstance(source, fx.Node):
            continue
        if source.target is not relu or node in returned or not same_tensor(node, source):
            continue
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        changed = True
    return changed


def f(x):
    return torch.relu(torch.relu(x)) + 1


def compiled_with(off):
    """The compiled result, and the number of relu calls in the ATen graph after the passes."""
    torch._dynamo.reset()
    calls = []

    def count(graph: fx.Graph) -> bool:
        calls.append(sum(node.target is relu for node in graph.nodes))
        return False

    tcdebug.register_pass()(count)
    options = {"log": False, "off": off}
    return torch.compile(f, backend="tcdebug", options=options)(x), calls[0]


tcdebug.register_pass()(repeated_relu)  # in the tree: a row of passes.PASSES
x = torch.randn(100)
for off in ([], ["passes.repeated_relu"]):
    y, calls = compiled_with(off)
    print(f"off={off}: {calls} relu, equal to eager: {torch.equal(y, f(x))}")

gate = Gate(Toggles.parse(["passes"]))  # a family includes every unit below it
print("passes off:", gate.allows("passes.repeated_relu", "passes.repeated_relu"))
