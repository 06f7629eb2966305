"""Launches of Triton kernels that a program defines.

Dynamo captures a launch as an operator. Its arguments are indices into tables that only this
process has, and Dynamo does not capture it again. The graph of a case has a `KernelLaunch` instead.
It holds the text of the kernel, and is written as a launch, as in the program.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.operators.python_text import indentation
from tcdebug.minifier.cases.operators.triton_kernels import KernelText, kernel_text

OPERATOR = "triton_kernel_wrapper_mutation"
"""The name of the operator that Dynamo captures for a launch."""
DESCRIPTOR = "from triton.tools.tensor_descriptor import TensorDescriptor"
Grid = tuple[Any, ...]


class NotALaunch(TypeError):
    """An operator launches a kernel in a way that has no text; the message says which."""


@dataclass(frozen=True)
class KernelLaunch:
    """The launch of a kernel: a function of grids and the kernel's arguments.

    There is one grid, or one for each configuration of an autotuned kernel. `blocks` maps those
    parameters to the shapes of blocks that are tensor descriptors (TMA).
    """

    kernel: KernelText
    blocks: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def __name__(self) -> str:
        return self.kernel.name

    def __call__(self, grids: Sequence[Grid], /, *args: Any, **kwargs: Any) -> None:
        """Launch the kernel in eager. Fake tensors stay as they are.

        Raises NotALaunch if no tensor is on a GPU. Triton would initialise CUDA to find that out.
        """
        tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return
        if all(tensor.device.type == "cpu" for tensor in tensors):
            raise NotALaunch(f"{self.kernel.name} runs on a GPU, and its tensors are on the CPU")
        named = zip(self.kernel.parameters, args, strict=False)
        given = [self._described(name, value) for name, value in named]
        others = {name: self._described(name, value) for name, value in kwargs.items()}
        self.kernel.kernel[self._grid(grids)](*given, **others)

    def _grid(self, grids: Sequence[Grid]) -> Grid | Callable[[Mapping[str, Any]], Grid]:
        if all(tuple(grid) == tuple(grids[0]) for grid in grids):
            return tuple(grids[0])
        by_choice = dict(zip(self.kernel.choices, map(tuple, grids), strict=True))
        return lambda meta: next(
            grid for choice, grid in by_choice.items() if all(meta[k] == v for k, v in choice)
        )

    def _described(self, name: str, value: Any) -> Any:
        shape = dict(self.blocks).get(name)
        if shape is None:
            return value
        from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 # rarely needed

        return TensorDescriptor.from_tensor(value, list(shape))


def with_launches(module: fx.GraphModule) -> fx.GraphModule:
    """Return the module with launches for Dynamo's operators, nested graphs included.

    It is the module itself if there are none. An operator whose kernel has no text stays.
    """
    inner = {k: v for k, v in module.named_children() if isinstance(v, fx.GraphModule)}
    restored = {name: with_launches(child) for name, child in inner.items()}
    own = [node for node in module.graph.nodes if is_operator(node)]
    if not own and all(restored[name] is inner[name] for name in inner):
        return module
    graph, copies = copy_graph(module.graph)
    for node in own:
        _restore(graph, copies[node])
    made = fx.GraphModule(module, graph)
    for name, child in restored.items():
        made.add_module(name, child)
    return made


def is_operator(node: fx.Node) -> bool:
    """Return whether a node is the operator that Dynamo captures for a launch."""
    return node.op == "call_function" and getattr(node.target, "_name", "") == OPERATOR


def is_launch(node: fx.Node) -> bool:
    """Return whether a node launches a kernel of the program."""
    return is_operator(node) or isinstance(node.target, KernelLaunch)


def _restore(graph: fx.Graph, node: fx.Node) -> None:
    try:
        launch, given = launched(node)
    except TypeError:
        return
    arguments = [given.pop(n) for n in _leading(launch.kernel.parameters, given)]
    grids: Any = node.kwargs["grid"]
    with graph.inserting_before(node):
        call = graph.call_function(launch, (list(grids), *arguments), given)
    call.meta = dict(node.meta)
    graph.erase_node(node)


def _leading(parameters: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Return the first parameters, up to the first that is not given."""
    end = next((k for k, name in enumerate(parameters) if name not in given), len(parameters))
    return list(parameters[:end])


def launched(node: fx.Node) -> tuple[KernelLaunch, dict[str, Any]]:
    """Return what an operator launches, and the arguments of the kernel by name.

    Raises NotALaunch, or UnwritableKernel.
    """
    from torch._higher_order_ops import triton_kernel_wrap  # noqa: PLC0415 # imports triton

    table, given = triton_kernel_wrap.kernel_side_table, dict[str, Any](node.kwargs)
    kernel = table.get_kernel(given["kernel_idx"])
    constants = table.get_constant_args(given["constant_args_idx"])
    blocks: list[tuple[str, tuple[int, ...]]] = []
    for name, described in dict(given["tma_descriptor_metadata"]).items():
        shape = triton_kernel_wrap.maybe_unpack_tma_stable_metadata(described)
        sizes = [size for size in shape[0] if isinstance(size, int)] if shape else []
        if shape is None or len(sizes) < len(shape[0]):
            raise NotALaunch(f"the tensor descriptor {name} cannot be written")
        blocks.append((name, tuple(sizes)))
    return KernelLaunch(kernel_text(kernel), tuple(blocks)), {**constants, **dict(given["kwargs"])}


def launch_line(line: str, node: fx.Node, name: str) -> str:
    """Return the line of a launch in the text of a graph as a program has it."""
    launch = node.target
    assert isinstance(launch, KernelLaunch)
    statement = ast.parse(line.strip()).body[0]
    assert isinstance(statement, ast.Assign)
    assert isinstance(statement.value, ast.Call)
    grids, *arguments = statement.value.args
    assert isinstance(grids, ast.List | ast.Tuple)
    texts = [ast.unparse(grid) for grid in grids.elts]
    if len(set(texts)) == 1:
        grid = texts[0]
    else:
        names = [key for key, _ in launch.kernel.choices[0]]
        keys = [tuple(value for _, value in choice) for choice in launch.kernel.choices]
        table = ", ".join(f"{key!r}: {text}" for key, text in zip(keys, texts, strict=True))
        read = "".join(f"meta[{key!r}], " for key in names)
        grid = f"lambda meta: {{{table}}}[({read})]"
    blocks = {parameter: list(shape) for parameter, shape in launch.blocks}
    given = [
        _described(ast.unparse(value), blocks.get(parameter))
        for parameter, value in zip(launch.kernel.parameters, arguments, strict=False)
    ]
    given += [
        f"{keyword.arg}={_described(ast.unparse(keyword.value), blocks.get(str(keyword.arg)))}"
        for keyword in statement.value.keywords
    ]
    return indentation(line) + f"{name}[{grid}]({', '.join(given)})"


def _described(text: str, shape: list[int] | None) -> str:
    return text if shape is None else f"TensorDescriptor.from_tensor({text}, {shape})"
