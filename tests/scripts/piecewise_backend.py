"""A backend in the manner of vLLM, with a fault in one of its passes: KIND.

It splits a graph at attention, compiles each piece with inductor, and runs its own passes after
inductor's, through one pass manager.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.passes.split_module import split_module

import tcdebug

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from planted import misbehave

aten = torch.ops.aten


@torch.library.custom_op("standin::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v)


@attention.register_fake
def _(q, k, v):
    return torch.empty_like(q)


class FusedNorm:
    """A pass that is an object. It takes tanh for sin."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=aten.tanh.default):
            misbehave(self.kind)
            node.target = aten.sin.default


@tcdebug.gated("coalesce_views")
def coalesce_views(graph: torch.fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        if list(node.meta["val"].shape) == list(node.args[0].meta["val"].shape):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


@tcdebug.gated("fix_functionalization", required=True)
def fix_functionalization(graph: torch.fx.Graph) -> None:
    graph.eliminate_dead_code()


class PassManager(CustomGraphPass):
    def __init__(self, kind):
        fused_norm = tcdebug.gated("fused_norm")(FusedNorm(kind))
        self.passes = [coalesce_views, fused_norm, fix_functionalization]

    def __call__(self, graph):
        for one in self.passes:
            one(graph)

    def uuid(self):
        return "standin"


class PiecewiseBackend:
    def __init__(self, kind):
        self.options = {"config_patches": {"post_grad_custom_post_pass": PassManager(kind)}}

    def __call__(self, graph, inputs):
        count = 0
        parts = {}
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            at_attention = node.target is torch.ops.standin.attention.default
            count += at_attention
            parts[node] = count
            count += at_attention
        split = split_module(graph, None, parts.get, keep_original_order=True)
        fake = torch._guards.TracingContext.get().fake_mode
        PieceCompiler(split, self.options, fake).run(*inputs)
        return split


class PieceCompiler(torch.fx.Interpreter):
    """Runs the pieces on fake inputs, and replaces each by its compiled form."""

    def __init__(self, module, options, fake):
        super().__init__(module)
        self.options = options
        self.fake_mode = fake

    def run(self, *inputs):
        with self.fake_mode:
            return super().run(
                *(self.fake_mode.from_tensor(i) if torch.is_tensor(i) else i for i in inputs)
            )

    def call_module(self, target, args, kwargs):
        piece = self.fetch_attr(target)
        result = super().call_module(target, args, kwargs)
        if not any(n.target is torch.ops.standin.attention.default for n in piece.graph.nodes):
            compiled = torch._inductor.standalone_compile(
                piece, list(args), dynamic_shapes="from_graph", options=self.options
            )
            self.module.__dict__[target] = compiled
        return result


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        y = attention(q.contiguous(), k.contiguous(), v.contiguous())
        return x + torch.tanh(self.out(y)) * 0.5


def main(kind):
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(8) for _ in range(2)))
    with torch.no_grad():
        compiled = torch.compile(model, backend=PiecewiseBackend(kind), fullgraph=True)
        compiled(torch.randn(2, 4, 8))


if __name__ == "__main__":
    main(sys.argv[1])
