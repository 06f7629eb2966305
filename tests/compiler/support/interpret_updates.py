"""Runs updates of inputs with their kernels in Triton's interpreter and prints differences.

TRITON_INTERPRET=1 python interpret_updates.py [COUNT [SEED]]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from interpreted import install
from updates import APART, ORDERED, SHARED, STATEMENTS, Layouts, Statement

from tcdebug.compiler.schedule import combo_kernels
from tcdebug.compiler.schedule.splitting import split_reduction

OFF: tuple[tuple[str, ...], ...] = (
    (), ("fuse.inline",), ("fuse.vertical",), ("codegen.persistent",),
    ("passes.updates_in_place",), ("memory.in_place",),
)  # fmt: skip
TOLERANCE = {torch.bfloat16: 4e-2, torch.float16: 4e-3, torch.float32: 1e-4}
Layout = Callable[[], tuple[torch.Tensor, torch.Tensor]]
COUNT = 10


KINDS: tuple[tuple[Layouts, list[Statement]], ...] = ((APART, STATEMENTS), (SHARED, ORDERED))


def difference(
    chosen: list[Statement], layout: Layout, off: tuple[str, ...], *, dynamic: bool
) -> str:
    """The difference from eager in one line; empty if there is none."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        for statement in chosen:
            statement(x, y)
        return (x * y.t()).sum(0), x + 1

    torch._dynamo.reset()
    expected, given = layout(), layout()
    once: Callable[..., Any] = torch.compile(
        function, backend="tcdebug", dynamic=dynamic, options={"off": list(off)}
    )
    try:
        for _ in range(2):
            pairs = [*zip(once(*given), function(*expected), strict=True)]
            for got, wanted in (*pairs, *zip(given, expected, strict=True)):
                largest = 1 + wanted.float().abs().amax().nan_to_num(posinf=0.0).item()
                atol = TOLERANCE[wanted.dtype] * largest
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=0, atol=atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ").replace("\t", " ")
    return ""


def main() -> None:
    """A line for each sequence of updates: what it is, its barriers, and its difference."""
    count, seed = (*map(int, sys.argv[1:]), *(COUNT, 0)[len(sys.argv) - 1 :])
    written = install()
    split_reduction.DEVICES = combo_kernels.DEVICES = ("cpu",)  # both are for GPUs
    drawn = random.Random(seed)  # the same sequences in every run
    cases = [(name, layouts[name], of) for layouts, of in KINDS for name in layouts]
    for number in range(count):
        name, layout, statements = cases[number % len(cases)]
        chosen = [drawn.randrange(len(statements)) for _ in range(drawn.randint(1, 5))]
        off, dynamic = drawn.choice(OFF), drawn.random() < 0.2
        wrong = difference([statements[k] for k in chosen], layout, off, dynamic=dynamic)
        barriers = sum(text.count("tl.debug_barrier()") for text in written.sources)
        written.sources.clear()
        sys.stdout.write(f"{name} {chosen} {','.join(off)} {dynamic}\t{barriers}\t{wrong}\n")


if __name__ == "__main__":
    main()
