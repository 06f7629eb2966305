"""Triton kernels of a program, in the graphs of cases. Nothing is launched, so no GPU is needed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
import triton
import triton.language as tl
from torch import fx
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from tcdebug.minifier.capture.handover import (
    Handover,
    NotTransferable,
    read_handover,
    write_handover,
)
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.cases.operators.triton_kernels import UnwritableKernel, kernel_text
from tcdebug.minifier.cases.operators.triton_launches import is_launch
from tcdebug.minifier.cases.source import load, module_source, readable_names
from tcdebug.minifier.reduction.operators.bypass_nodes import BypassNodes
from tcdebug.minifier.reduction.operators.launch_arguments import launch_arguments
from tcdebug.minifier.targets.backends import Backend

LIMIT: tl.constexpr = 3
NAME = tl.constexpr("tanh")
WIDE = tl.float32
TABLE = [1, 2]
INDUCTOR = Backend("inductor", "inductor")


@triton.jit
def bent(x):
    return libdevice.tanh(x) if NAME == "tanh" else x


other = bent


@triton.jit(do_not_specialize=["n"])
def scaled(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Scale and bend."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(WIDE)
    tl.store(out_ptr + at, other(bent(x)) * scale + LIMIT, mask=at < n)


tuned = triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"]
)(scaled)


@triton.jit
def moved(source, n, target_ptr, BLOCK: tl.constexpr):
    tl.store(target_ptr + tl.arange(0, BLOCK), source.load([0]))


@triton.jit
def unwritable(x_ptr):
    tl.store(x_ptr, len(TABLE))


def launch(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, 2.0)
    return out.sin()


def launch_plain(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scaled[(4,)](x, out, x.numel(), 2.0, BLOCK=64)
    return out.sin()


def launch_twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scaled[(4,)](x, out, x.numel(), 2.0, BLOCK=64)
    scaled[(4,)](x, out, x.numel(), 2.0, BLOCK=64, num_warps=8)
    return out


def launch_descriptor(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    moved[(1,)](TensorDescriptor.from_tensor(x, [256]), 256, out, BLOCK=256)
    return out


def launch_unwritable(x: torch.Tensor) -> torch.Tensor:
    unwritable[(1,)](x)
    return x


@pytest.fixture(autouse=True)
def kernels_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo captures launches only where Triton has a device."""
    for name in ("has_triton", "has_triton_tensor_descriptor_host_tma"):
        monkeypatch.setattr(f"torch.utils._triton.{name}", lambda **_: True)


def captured(
    function: Callable[..., Any], x: torch.Tensor | None = None, *, dynamic: bool = False
) -> Case:
    cases: list[Case] = []

    def backend(module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            cases.append(readable_names(from_captured(module, values)))
            return [values[-1]]

        return call

    torch._dynamo.reset()
    given = torch.arange(256.0) if x is None else x
    torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(given)
    return cases[0]


def forward(case: Case) -> str:
    text = module_source(case.module).text
    return text[text.index("    def forward") :]


def test_the_text_of_a_kernel_defines_what_it_reads() -> None:
    written = kernel_text(scaled)
    assert written.imports == (
        "import triton",
        "import triton.language",
        "import triton.language as tl",
        "import triton.language.extra.libdevice as libdevice",
    )
    assert [name for name, _ in written.definitions] == [
        "LIMIT", "WIDE", "NAME", "bent", "other", "scaled",
    ]  # fmt: skip
    texts = dict(written.definitions)
    assert texts["LIMIT"] == "LIMIT = triton.language.constexpr(3)"
    assert texts["WIDE"] == "WIDE = triton.language.float32"
    assert texts["other"] == "other = bent"
    assert texts["scaled"].startswith("@triton.jit(do_not_specialize=['n'])\ndef scaled(x_ptr, ")
    assert written.kernel.src == scaled.src


def test_an_autotuned_kernel_is_written_with_its_configurations() -> None:
    written = kernel_text(tuned)
    assert dict(written.definitions)["scaled_tuned"] == (
        "scaled_tuned = triton.autotune(\n"
        "    configs=[\n"
        "        triton.Config({'BLOCK': 64}, num_warps=2),\n"
        "        triton.Config({'BLOCK': 128}),\n"
        "    ],\n"
        "    key=['n'],\n"
        ")(scaled)"
    )
    assert [config.num_warps for config in written.kernel.configs] == [2, 4]


def test_a_kernel_that_reads_an_object_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnwritableKernel, match="the kernel reads TABLE, a list"):
        kernel_text(unwritable)
    case = captured(launch_unwritable)
    handover = Handover(case, INDUCTOR, Ambient.current(), 0, 0)
    with pytest.raises(NotTransferable, match="the kernel reads TABLE, a list"):
        write_handover(handover, tmp_path / "graph")


def test_a_launch_is_written_as_in_the_program() -> None:
    assert forward(captured(launch_plain)) == (
        "    def forward(self, x):\n"
        "        out = torch.empty_like(x)\n"
        "        scaled[(4, 1, 1)](x, out, 256, 2.0, 64)\n"
        "        sin = out.sin()\n"
        "        return (sin,)\n"
    )


def test_the_classes_of_a_graph_are_its_text_without_kernels() -> None:
    source = module_source(captured(launch_plain).module)
    assert source.definitions.startswith("LIMIT = triton.language.constexpr(3)\n")
    assert source.classes.startswith("class Graph(torch.nn.Module):\n")
    assert source.text == source.definitions + source.classes


def test_each_configuration_has_its_grid() -> None:
    assert (
        "scaled_tuned[lambda meta: {(64,): (4, 1, 1), (128,): (2, 1, 1)}[(meta['BLOCK'], )]]"
        in (forward(captured(launch)))
    )


def test_settings_of_a_launch_are_written() -> None:
    text = module_source(captured(launch_twice).module).text
    assert "triton.Config({}, num_warps=8)," in text
    assert "        scaled[(4, 1, 1)](x, out, 256, 2.0, 64)\n" in text
    assert "        scaled_tuned[(4, 1, 1)](x, out, 256, 2.0, 64)\n" in text


def test_tensor_descriptors_are_written() -> None:
    written = module_source(captured(launch_descriptor).module)
    assert "from triton.tools.tensor_descriptor import TensorDescriptor" in written.imports
    assert "moved[(1, 1, 1)](TensorDescriptor.from_tensor(x, [256]), 256, out, 256)" in written.text


def test_a_variable_with_the_name_of_a_kernel_is_another_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        tanh = torch.tanh(x)
        scaled = tanh + 1
        launch_kernel(scaled, tanh)
        return scaled

    kernel = scaled

    def launch_kernel(source: torch.Tensor, target: torch.Tensor) -> None:
        kernel[(4,)](source, target, 256, 2.0, BLOCK=64)

    text = module_source(captured(function).module).text
    assert "def scaled_1(" in text
    assert "scaled_1[(4, 1, 1)](scaled, tanh, 256, 2.0, 64)" in text


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [launch, launch_plain, launch_twice, launch_descriptor])
def test_what_is_written_is_captured_again(
    function: Callable[..., Any], dynamic: bool, tmp_path: Path
) -> None:
    case = captured(function, dynamic=dynamic)
    again = captured(load(case, str(tmp_path / "graph.py")), dynamic=dynamic)
    assert module_source(again.module).text == module_source(case.module).text


def test_a_graph_with_a_launch_is_handed_over(tmp_path: Path) -> None:
    case = captured(launch)
    write_handover(Handover(case, INDUCTOR, Ambient.current(), 0, 0), tmp_path / "graph")
    read = read_handover(tmp_path / "graph").case
    assert module_source(read.module).text == module_source(case.module).text
    (copied,) = (n.target for n in read.graph.nodes if n.name.startswith("scaled"))
    assert pickle.loads(pickle.dumps(copied)) == copied


def edited(case: Case, old: str, new: str) -> Case:
    """Return the case in which one value stands for another."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(case.graph, copies))
    named = {node.name: copy for node, copy in copies.items()}
    named[old].replace_all_uses_with(named[new])
    graph.erase_node(named[old])
    return Case(fx.GraphModule(case.module, graph), case.inputs)


def indexed(x: torch.Tensor) -> torch.Tensor:
    wide = x.exp()
    rows = x.to(torch.int64)
    others = rows + 1
    transposed = x.view(16, 16).t()
    out = torch.empty_like(x)
    scaled[(4,)](wide, out, others, transposed, BLOCK=64)
    return out


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        ("wide", "x", True),
        ("others", "rows", False),
        ("out", "wide", False),
        ("transposed", "view", False),
    ],
    ids=["other contents", "another integer", "shared memory", "another layout"],
)
def test_only_contents_of_floating_point_numbers_may_change(
    old: str, new: str, holds: bool
) -> None:
    case = captured(indexed)
    given = launch_arguments(case)
    assert given is not None
    assert given.hold_for(case)
    assert given.hold_for(edited(case, old, new)) is holds


def test_edits_of_a_graph_that_cannot_run_on_the_cpu_are_found_without_its_memory() -> None:
    case = captured(indexed)
    on_gpu = Case(case.module, tuple(replace(spec, device="cuda") for spec in case.inputs))
    assert BypassNodes().edits(on_gpu) == [
        "wide", "others", "transposed", "out", "scaled",
    ]  # fmt: skip


def test_a_launch_goes_with_the_memory_that_it_writes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        first = torch.empty_like(x)
        scaled[(4,)](x.sin(), first, 256, 2.0, BLOCK=64)
        second = torch.empty_like(x)
        scaled[(4,)](first, second, 256, 2.0, BLOCK=64)
        return second.cos()

    case = captured(function)
    on_gpu = Case(case.module, tuple(replace(spec, device="cuda") for spec in case.inputs))
    bypass = BypassNodes()
    launches = [node.name for node in case.calls if is_launch(node)]
    assert set(launches) <= set(bypass.edits(on_gpu))
    without = bypass.apply(on_gpu, launches)
    assert without is not None
    assert forward(without) == (
        "    def forward(self, x):\n"
        "        sin = x.sin()\n"
        "        cos = sin.cos()\n"
        "        return (cos,)\n"
    )
    one = bypass.apply(on_gpu, launches[1:])
    assert one is not None
    assert [node.name for node in one.calls] == ["first", "sin", "scaled", "cos"]


def test_integers_of_an_input_may_not_change() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(256)
        scaled[(4,)](out, out, x, 2.0, BLOCK=64)
        return out

    case = captured(function, torch.arange(256))
    given = launch_arguments(case)
    assert given is not None
    (spec,) = case.inputs
    changed = replace(spec, value=torch.arange(256).flip(0))
    assert not given.hold_for(case.with_inputs({spec.name: changed}))


def test_what_a_nested_graph_passes_to_a_kernel_is_kept() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scaled[(4,)](x, out, 256, 2.0, BLOCK=64)
        return out

    def function(x: torch.Tensor) -> torch.Tensor:
        wide = x.exp()
        rows = x.to(torch.int64)
        found = torch.utils.checkpoint.checkpoint(body, wide + rows, use_reentrant=False)
        return found.sin()

    case = captured(function)
    assert "        scaled[(4, 1, 1)](" in module_source(case.module).text
    given = launch_arguments(case)
    assert given is not None
    assert list(given.origins) == ["tag_activation_checkpoint"]
    assert given.hold_for(case)
    (spec,) = case.inputs
    assert not given.hold_for(case.with_inputs({spec.name: replace(spec, value=torch.ones(2))}))
