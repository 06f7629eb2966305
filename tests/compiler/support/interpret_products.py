"""Runs templates of matrix products in Triton's interpreter and prints differences from eager.

TRITON_INTERPRET=1 python interpret_products.py
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
import triton
from interpret_programs import Program, difference
from interpreted import install
from planted_times import Planted, templates_win

from tcdebug.compiler.runtime.cuda import products
from tcdebug.compiler.schedule.products import product_fusion

INF = float("inf")
OFF = ("memory.in_place",)
"""On a GPU, nothing is stored over what is read."""
half = torch.float16


def few(*size: int) -> torch.Tensor:
    """Small integers."""
    return torch.randint(-3, 4, size).float()


def programs() -> dict[str, Program]:
    """Name -> function, inputs, units that are off."""
    r = torch.randn
    infinite = r(20, 17)
    infinite[3, 5], infinite[4, 6] = INF, float("nan")
    return {
        "bias and GELU, nothing even": (
            lambda x, w, b: F.gelu(x @ w + b),
            (r(37, 50) / 10, r(50, 70), r(70)),  # zeros have the sign that erf rounds to
            OFF,
        ),
        "halves round before what follows": (
            lambda x, w: (x @ w).float() * 3,
            (r(5, 20).to(half), r(20, 3).to(half)),
            OFF,
        ),
        "bfloat16": (  # numbers that need no rounding, which the interpreter gets wrong
            lambda x, w: (x @ w).float() * 3,
            (few(5, 20).bfloat16(), few(20, 3).bfloat16()),
            OFF,
        ),
        "a layer of rows in a batch": (
            lambda x, w, b: F.relu(F.linear(x, w, b)),
            (r(3, 17, 50), r(70, 50), r(70)),
            OFF,
        ),
        "a sum with scales": (
            lambda b, x, w: torch.addmm(b, x, w, alpha=0.5, beta=2) * 3,
            (r(33), r(17, 50), r(50, 33)),
            OFF,
        ),
        "batches, transposed": (
            lambda b, x, y: torch.baddbmm(b, x, y.transpose(1, 2), beta=0.3).relu(),
            (r(5, 1, 20), r(5, 17, 40), r(5, 20, 40)),
            OFF,
        ),
        "a batch that is one matrix": (
            lambda x, w: (x @ w.expand(4, 17, 30)).relu(),
            (r(4, 20, 17), r(17, 30)),
            OFF,
        ),
        "everything transposed": (
            lambda x, w: (x.t() @ w.t()).t().contiguous() + 1,
            (r(50, 17), r(33, 50)),
            OFF,
        ),
        "heads": (
            lambda x, w: (x @ w).view(2, 16, 4, 8).transpose(1, 2) * 2,
            (r(32, 24), r(24, 32)),
            OFF,
        ),
        "two results and the product": (
            lambda x, w, y: ((z := x @ w), z + y, (z + y).relu()),
            (r(17, 50), r(50, 33), r(17, 33)),
            OFF,
        ),
        "operands that are made": (
            lambda x, w: ((1 / x) @ (w + 1)).relu(),
            (r(20, 17), r(17, 30)),
            OFF,
        ),
        "one row": (
            lambda x, a, b: F.silu(x @ a) * (x @ b),
            (r(1, 50), r(50, 64), r(50, 64)),
            OFF,
        ),
        "one column, one sum": (lambda x, w: (x @ w).relu(), (r(33, 1), r(1, 1)), OFF),
        "infinities": (lambda x, w: (x @ w).relu(), (infinite, r(17, 30)), OFF),
        "nothing": (lambda x, w: (x @ w).relu(), (r(0, 50), r(50, 33)), OFF),
        "nothing to sum": (lambda x, w: (x @ w) + 1, (r(4, 0), r(0, 33)), OFF),
        "into an input": (lambda x, w, o: o.add_(x @ w), (r(5, 20), r(20, 3), r(5, 3)), OFF),
    }


def open_sizes() -> str:
    """What differs if a kernel is called with sizes that it was not compiled for.

    The interpreter of Triton 3.6 cannot run a loop with open bounds with NumPy 2.4.
    """
    if triton.__version__.startswith("3.6."):
        return ""
    torch._dynamo.reset()
    options = {"templates": True, "off": list(OFF)}
    compiled = torch.compile(
        lambda x, w, b: F.gelu(x @ w + b), backend="tcdebug", dynamic=True, options=options
    )
    for rows, depth, columns in ((37, 50, 70), (64, 33, 129), (2, 7, 16)):
        x, w, b = torch.randn(rows, depth), torch.randn(depth, columns), torch.randn(columns)
        if not torch.allclose(compiled(x, w, b), F.gelu(x @ w + b), atol=1e-4):
            return f"of {rows}, {depth}, {columns}"
    return ""


def main() -> None:
    """A line for each program: its name, the number of graphs and templates, the differences."""
    written = install()
    product_fusion.DEVICES = ("cpu",)
    planted = Planted(templates_win)
    products.Bench = planted  # type: ignore[misc, assignment] # in its place
    torch.manual_seed(0)

    def report(name: str, wrong: str) -> None:
        templates = sum(source.count("tl.dot") for source in written.sources)
        sys.stdout.write(f"{name}\t{len(written.sources)}\t{templates}\t{wrong}\n")
        written.sources.clear()

    for name, program in programs().items():
        report(name, difference(program, templates=True))
    report("open sizes", open_sizes())


if __name__ == "__main__":
    main()
