"""Scripts with several planted bugs: independent ones, and one that needs two units together.

Each script plants its bugs itself, in stock inductor or in the embedded compiler. If torch's
bisector runs it, it compiles with the backend that the bisector names. It exits with 1 if the
result is wrong.
"""

from __future__ import annotations

from typing import Any

HEAD = """
import os, sys, torch
aten = torch.ops.aten
torch.manual_seed(0)
print("ASKED", flush=True)

def renamed(graph, old, new):
    for node in graph.nodes:
        if node.target is old:
            node.target = new

def softplus(x, beta=1, threshold=20):
    return torch.log1p(torch.exp(x)) * 1.5
"""
MODEL = """
def f(x, w):
    a = torch.nn.functional.softplus(x @ w) / 2
    b = torch.tanh(a - a.mean(-1, keepdim=True)) + x
    c = torch.cos(torch.softmax(b, -1) * 3)
    return torch.cat([a, b * 2, torch.sigmoid(c)], -1).view(8, 3, 8).sum(-1)

x, w = torch.randn(8, 8), torch.randn(8, 8)
got = torch.compile(f, backend=os.environ.get("TORCH_COMPILE_BACKEND") or "{backend}")(x, w)
sys.exit(0 if torch.allclose(got, f(x, w), rtol=1e-3, atol=1e-3) else 1)
"""

INDUCTOR = """
from torch._inductor import config, decomposition, lowering
lowerings = lowering.lowerings

def lower(op, function):
    lowering.register_lowering(op, type_promotion_kind=None)(function)

def in_pass(function):
    config.post_grad_custom_post_pass = function

def decompose(op, function):
    decomposition.decompositions[op] = function
    decomposition.fast_random_decomps.cache_clear()
"""
EMBEDDED = """
from tcdebug.compiler import decompose as decomposing, pipeline
from tcdebug.compiler.lower.tables import LOWERINGS as lowerings
from tcdebug.compiler.registry import REGISTRY

def lower(op, function):
    REGISTRY.lowerings[op] = function

def in_pass(function):
    algebraic = pipeline.ATEN["passes.algebraic"]
    def broken(graph):
        function(graph)
        return algebraic(graph)
    REGISTRY.aten_passes["passes.algebraic"] = broken

def decompose(op, function):
    REGISTRY.decompositions[op] = function
"""
COMPILERS = {"inductor": INDUCTOR, "tcdebug": EMBEDDED}
"""How a script plants its bugs, by backend."""

PASS = "in_pass(lambda graph: renamed(graph, aten.cos.default, aten.sin.default))\n"
LOWERING = "lower(aten.tanh.default, lambda *given: sine(*given))\n"
PAIR = """
tanh, marked = lowerings[aten.tanh.default], []

def mark(graph):
    if any(node.target is aten.tanh.default for node in graph.nodes):
        marked.append(graph)

in_pass(mark)
lower(aten.tanh.default, lambda *given: (sine if marked else tanh)(*given))
"""
SINE = "sine = lowerings[aten.sin.default]\n"
PLANTS = {
    "two": SINE + PASS + LOWERING,
    "pair": SINE + PAIR,
    "three": SINE + PASS + LOWERING + "decompose(aten.softplus.default, softplus)\n",
}

A_PASS = {"inductor": "postgrad.post_grad_custom_post_pass", "tcdebug": "passes.algebraic"}
TANH, SOFTPLUS = "lower.aten.tanh.default", "decompose.aten.softplus.default"


def script(backend: str, kind: str) -> str:
    """The text of a script."""
    return HEAD + COMPILERS[backend] + PLANTS[kind] + MODEL.format(backend=backend)


def expected(backend: str, kind: str) -> list[list[str]]:
    """The units of each fault: the culprit and its partners, in any order."""
    first = A_PASS[backend]
    faults = {
        "two": [[first], [TANH]],
        "pair": [[first, TANH]],
        "three": [[first], [TANH], [SOFTPLUS]],
    }
    return sorted(sorted(units) for units in faults[kind])


def found(report: Any) -> list[list[str]]:
    """The faults of a report in the same form."""
    faults = [f for f in report["faults"] if f["culprits"]]
    return sorted(sorted([f["culprits"][0]["unit"], *f["partners"]]) for f in faults)
