"""The data flow of graphs that inductor compiled, read from a real compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import config

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.trace.torch_trace import traced
from tcdebug.reading.dataflow import Box, Flow
from tcdebug.reading.inductor_flow import inductor_flow
from tcdebug.reading.run_dir import read


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """The texts of a compile with a backward, by stage and direction."""
    folder = tmp_path_factory.mktemp("run")
    torch._dynamo.reset()
    x, w = torch.ones(4, 8, requires_grad=True), torch.ones(8, 16)
    with traced(EventLog(folder, own=True)), config.patch(force_disable_caches=True):
        torch.compile(lambda x, w: torch.sin((x @ w).t() * 2 + 1))(x, w).sum().backward()
    events = [r for r in read(folder / "events.jsonl") if r["event"] == "stage.text"]
    return {
        (str(r["stage"]), str(r["direction"])): Path(folder, r["data"]["artifact"]).read_text()
        for r in events
    }


def drawn(texts: dict[tuple[str, str], str], direction: str, **computed: list[str]) -> Flow:
    graph = texts["inductor_post_grad_graph", direction]
    flow = inductor_flow(graph, texts["inductor_output_code", direction], computed)
    assert flow is not None
    return flow


def rows(boxes: list[Box]) -> list[tuple[str, str, list[str], int]]:
    return [(b.kind, b.op, b.reads, b.written) for b in boxes]


@pytest.mark.slow
def test_the_graph_of_each_direction_is_filed_under_that_direction(
    texts: dict[tuple[str, str], str],
) -> None:
    for stage in ("before_post_grad_graph", "inductor_post_grad_graph", "inductor_output_code"):
        assert "tangents_1" not in texts[stage, "forward"]
        assert "tangents_1" in texts[stage, "backward"]


def test_operators_become_kernels_and_library_calls_with_their_reads_and_bytes(
    texts: dict[tuple[str, str], str],
) -> None:
    flow = drawn(texts, "forward")
    assert (flow.of, flow.grouped) == ("operator", False)
    before = {b.name: b for b in flow.before}
    assert [b.op for b in flow.before if b.kind == "pointwise"] == [
        "aten.mul.Tensor", "aten.add.Tensor", "aten.sin.default",
    ]  # fmt: skip
    assert (before["mm"].kind, before["mm"].written, before["mm"].moved) == ("extern", 256, 0)
    assert before["mul"].reads == ["mm"]  # through the transposition
    assert before["sin"].moved == 256 + 256
    after = [b for b in flow.after if b.kind in ("extern", "kernel")]
    assert [(b.kind, b.reads) for b in after] == [
        ("extern", ["primals_1", "primals_2"]),
        ("kernel", ["mm"]),
    ]
    assert (after[1].written, after[1].moved) == (256, 512)
    assert after[1].name in flow.after[-1].reads


def test_operators_have_the_kernel_that_a_run_recorded(texts: dict[tuple[str, str], str]) -> None:
    name = next(b.name for b in drawn(texts, "forward").after if b.kind == "kernel")
    flow = drawn(texts, "forward", **{name: ["mul", "add", "sin"]})
    assert flow.grouped
    assert {b.name for b in flow.before if b.group == name} == {"mul", "add", "sin"}
    assert next(b.op for b in flow.after if b.name == name) == "3 operators"


def test_the_comment_above_a_triton_kernel_names_its_nodes() -> None:
    graph = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8][1]cuda:0"):
        sin: "f32[8][1]cuda:0" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        add: "f32[8][1]cuda:0" = torch.ops.aten.add.Tensor(sin, 1);  sin = None
        return (add,)
"""
    code = """
# Graph fragment:
#   %arg0_1 : Tensor "f32[8][1]cuda:0" = PlaceHolder[target=arg0_1]
#   %sin : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=aten.sin](args = (%arg0_1,))
#   %add : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=aten.add](args = (%sin, 1))
triton_poi_0 = async_compile.triton('triton_poi_0', '''
triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'}}
''', device_str='cuda')

def call(args):
    arg0_1, = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((8, ), (1, ), torch.float32)
        triton_poi_0.run(arg0_1, buf0, 8, stream=stream0)
    return (buf0, )
"""
    flow = inductor_flow(graph, code, {})
    assert flow is not None and flow.grouped
    assert [b.group for b in flow.before] == ["", "triton_poi_0", "triton_poi_0", ""]
    assert rows(flow.after) == [
        ("input", "", [], 32),
        ("kernel", "2 operators", ["arg0_1"], 32),
        ("output", "", ["triton_poi_0"], 0),
    ]


def test_only_texts_of_graphs_and_wrappers_are_drawn() -> None:
    assert inductor_flow("not a graph", "x = 1", {}) is None
    assert inductor_flow("def forward(self):\n    return 1\n", "", {}) is None
