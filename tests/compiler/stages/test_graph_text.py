"""FX graphs as text: values, calls, nested graphs and source lines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.stages.graph_text import GraphText, argument, type_text, user_line

TRACE = """  File "/me/model.py", line 3, in main
    f(x)
  File "/me/f.py", line 9, in f
    y = x + 1
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.empty(2, 3), "f32[2, 3]"),
        (torch.empty(3, 2, dtype=torch.bfloat16).t(), "bf16[2, 3][1, 2]"),
        (torch.empty(1, 3).as_strided((1, 3), (7, 1)), "f32[1, 3]"),
        (torch.empty(4).expand(2, 4), "f32[2, 4][0, 1]"),
        (torch.empty(3, 0).t(), "f32[0, 3]"),
        (torch.empty((), dtype=torch.bool), "b8[]"),
        (torch.empty(2, dtype=torch.float8_e4m3fn), "f8e4m3fn[2]"),
        (torch.empty(2, dtype=torch.complex64), "c64[2]"),
        (torch.empty(2, dtype=torch.uint8, device="meta"), "u8[2] meta"),
        (torch.eye(2).to_sparse(), "f32[2, 2] sparse_coo"),
        (3, ""),
        ((torch.empty(2),), ""),
    ],
)
def test_the_type_of_a_value_shows_unusual_strides_and_devices(value: Any, text: str) -> None:
    assert type_text(value) == text


def test_printing_symbolic_sizes_adds_no_guard() -> None:
    traced = make_fx(lambda x: x.t() + x.shape[0], tracing_mode="symbolic")(torch.empty(6, 4))
    fake = next(iter(traced.graph.nodes)).meta["val"]
    shapes = fake.fake_mode.shape_env
    before = len(shapes.guards)
    rows, columns = map(str, fake.shape)
    assert type_text(fake.t()) == f"f32[{columns}, {rows}][1, {columns}]"
    assert type_text(fake.shape[0]) == f"Sym({rows})"
    assert len(shapes.guards) == before
    assert not rows.isdecimal()


def test_the_source_line_is_that_of_the_innermost_frame() -> None:
    assert user_line(TRACE) == "/me/f.py:9 in f: y = x + 1"
    assert user_line('  File "/me/f.py", line 9, in f\n') == "/me/f.py:9 in f"
    assert user_line("nothing of the kind") == ""


def test_arguments_are_printed_as_python() -> None:
    node = fx.Graph().placeholder("x")
    values = (node, [1, -1.5], {"dim": slice(None, node)}, torch.float32, "s", None)
    assert (
        argument(values)
        == "(x, [1, -1.5], {'dim': slice(None, x, None)}, torch.float32, 's', None)"
    )
    assert argument((node,)) == "(x,)"
    assert argument(torch.ops.aten.add.Tensor) == "torch.ops.aten.add.Tensor"


def graph() -> fx.GraphModule:
    """A graph with every kind of node."""
    made = fx.Graph()
    x, n = made.placeholder("x"), made.placeholder("n", default_value=2)
    x.meta["example_value"] = torch.empty(3, 2).t()
    weight = made.get_attr("weight")
    first = made.call_function(torch.add, (x, weight), {"alpha": n})
    second = made.call_method("view", (first, -1))
    third = made.call_module("layer", (second,))
    first.meta["stack_trace"] = TRACE
    second.meta["stack_trace"] = TRACE.replace("main", "other")
    made.output((third, None))
    root = torch.nn.Module()
    root.weight = torch.nn.Parameter(torch.empty(2))
    root.layer = torch.nn.ReLU()
    return fx.GraphModule(root, made)


def test_every_kind_of_node_is_printed_and_each_line_once() -> None:
    assert GraphText().write(graph()).splitlines() == [
        'def forward(x: "f32[2, 3][1, 2]", n = 2):',
        "    weight = self.weight",
        "",
        "    # /me/f.py:9 in f: y = x + 1",
        "    add = torch.add(x, weight, alpha=n)",
        "    view = add.view(-1)",
        "    layer = self.layer(view)",
        "    return (layer, None)",
    ]


def test_graphs_that_a_node_calls_are_printed_after_it() -> None:
    outer = fx.Graph()
    outer.output(outer.get_attr("body"))
    root = torch.nn.Module()
    root.body = graph()
    text = GraphText().write(fx.GraphModule(root, outer))
    assert text.startswith("def forward():\n    body = self.body\n    return body\n\ndef body(x: ")


def test_many_arguments_are_printed_one_per_line() -> None:
    made = fx.Graph()
    made.output([made.placeholder(f"a_long_name_{k}") for k in range(9)])
    lines = GraphText().write(fx.GraphModule({}, made)).splitlines()
    assert lines[:2] == ["def forward(", "        a_long_name_0,"]
    assert lines[9:11] == ["        a_long_name_8,", "):"]


def test_a_node_that_a_pass_changed_is_printed_again() -> None:
    module, writer = graph(), GraphText()
    writer.write(module)
    x, _, weight, first, *_ = module.graph.nodes
    first.replace_input_with(weight, x)
    x.meta["example_value"] = torch.empty(5)
    first.meta["val"] = torch.empty(5)
    lines = writer.write(module).splitlines()
    assert lines == GraphText().write(module).splitlines()
    assert '    add: "f32[5]" = torch.add(x, x, alpha=n)' in lines
