"""A transformer layer with a custom compiler pass that is wrong. Eager is right.

tcdebug bisect docs/examples/wrong_gelu.py
"""

import torch
from torch import nn

import tcdebug

aten = torch.ops.aten


@tcdebug.register_pass()
def fast_gelu(graph):
    """Replace erf(x) by tanh(1.13 x), which is only nearly the same."""
    changed = False
    for node in graph.nodes:
        if node.target is aten.erf.default:
            with graph.inserting_before(node):
                scaled = graph.call_function(aten.mul.Tensor, (node.args[0], 1.13))
                scaled.meta["val"] = node.meta["val"]
            node.target = aten.tanh.default
            node.args = (scaled,)
            changed = True
    return changed


def main():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, nhead=4, dim_feedforward=64, activation="gelu", dropout=0.0, batch_first=True
    )
    model = torch.compile(nn.Sequential(layer, nn.Linear(32, 8)), backend="tcdebug")
    loss = model(torch.randn(2, 10, 32)).square().mean()
    loss.backward()
    print(f"loss {loss.item():.4f}")  # noqa: T201 - what a user's script does


if __name__ == "__main__":
    main()
