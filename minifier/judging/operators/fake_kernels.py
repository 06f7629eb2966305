"""Finds operators of torch whose fake kernels do not describe their results.

AOTAutograd traces with fake kernels, which give the sizes, strides and dtypes of results without
computing them. A backend trusts them: it allocates memory and computes addresses accordingly. If a
fake kernel is wrong, the graphs of AOTAutograd are still right when they run in plain torch, so the
backend seems to be at fault. Custom operators are checked by `custom_operators` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._ops import OpOverload

from tcdebug.minifier.cases.case import Case, tensors_of
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.autograd_stages import boxed
from tcdebug.minifier.judging.replay import fresh_capture, run


def wrong_fake_kernels(case: Case, filename: str) -> list[str]:
    """Return one sentence for each operator whose fake kernel does not describe its result.

    The case runs compiled by AOTAutograd with the decompositions of inductor, and its graphs run in
    plain torch. Tensors of dynamic size are not compared. Raises what the case raises.
    """
    found: dict[str, str] = {}

    def compiled(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return boxed(lambda arguments: _ComparedRun(graph, found).run(*arguments))

    backend = aot_autograd(
        fw_compiler=compiled,
        bw_compiler=compiled,
        inference_compiler=compiled,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    with fresh_capture():
        run(torch.compile(load(case, filename), backend=backend), case, mark=True)
    return list(found.values())


class _ComparedRun(fx.Interpreter):
    """Runs a graph and compares the result of each operator with its traced value.

    `found` gets the first difference by operator. A difference is attributed to the first operator
    that has it. The operators that read its result were traced with other arguments.
    """

    def __init__(self, graph: fx.GraphModule, found: dict[str, str]) -> None:
        super().__init__(graph)
        self.found = found
        self.differing: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        """Run a node. Its operator is recorded if the traced value does not describe the result."""
        result = super().run_node(n)
        what = next(_differences(n.meta.get("val"), result), "")
        if what:
            if isinstance(n.target, OpOverload) and self.differing.isdisjoint(n.all_input_nodes):
                text = f"the fake kernel of {n.target}, which backends trust, is wrong: {what}"
                self.found.setdefault(str(n.target), text)
            self.differing.add(n)
        return result


def _differences(traced: Any, result: Any) -> Iterator[str]:
    """Yield how the tensors of a result differ from those of its traced value."""
    for fake, real in zip(tensors_of(traced), tensors_of(result), strict=False):
        if not all(isinstance(number, int) for number in (*fake.shape, *fake.stride())):
            continue
        for name, said, was in (
            ("dtype", fake.dtype, real.dtype),
            ("size", list(fake.shape), list(real.shape)),
            ("strides", _strides(fake), _strides(real)),
        ):
            if said != was:
                yield f"it says {name} {said}, but the result has {was}"
                break


def _strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides, with 1 for those of dimensions along which no step is ever taken."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return []
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size > 1 else 1 for size, stride in pairs]
