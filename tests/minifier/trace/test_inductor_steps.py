"""The calls of inductor's generated code, with their nodes and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tcdebug.compiler.events.schema import GraphStep
from tcdebug.minifier.trace.inductor_steps import inductor_steps

CODE = """
cpp_fused_exp_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0)
''')
        assert_size_stride(arg0_1, (8, 4), (4, 1))
        buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        # [Provenance debug handles] cpp_fused_exp_0:2
        cpp_fused_exp_0(buf0, arg0_1)
        # [Provenance debug handles] torch.ops.aten.sort.stable:3
        buf1 = torch.ops.aten.sort.stable(buf0, stable=False, dim=1, descending=False)
        # [Provenance debug handles] cpp_fused_exp_0:4
        cpp_fused_exp_0(buf0, arg0_1)
"""

GRAPH = """
        # File: /a b/model.py:3 in forward, code: y = x @ w
        permute: "f32[4, 8][1, 4]cpu" = torch.ops.aten.permute.default(arg0_1, [1, 0])
        mm: "f32[8, 4][4, 1]cpu" = torch.ops.aten.mm.default(permute, arg1_1)

        # File: /a b/model.py:4 in forward, code: z = y.exp() + 1
        exp: "f32[8, 4][4, 1]cpu" = torch.ops.aten.exp.default(mm)
        # No stacktrace found for following nodes
        add = torch.ops.aten.add.Tensor(exp, 1)
"""

INSIDE = f'  File "{torch.__path__[0]}/nn/functional.py", line 9, in f\n    return g(x)\n'


def trace(line: int, more: str = "") -> str:
    return f'  File "model.py", line {line}, in forward\n    y = f(x)\n{more}'


def steps(nodes: dict[str, Sequence[str]], traces: dict[str, Sequence[str]]) -> list[GraphStep]:
    return list(inductor_steps(CODE, GRAPH, nodes, traces))


def test_each_call_has_its_name_in_a_profile_its_nodes_and_its_lines() -> None:
    nodes: Any = {"extern_kernels.mm:1": ["mm"], "cpp_fused_exp_0:2": ["exp", "add"]}
    traces: Any = {
        "extern_kernels.mm:1": [trace(3, INSIDE)],
        "cpp_fused_exp_0:2": [trace(4), trace(5), trace(4)],
        "cpp_fused_exp_0:4": [trace(7)],
        "cpp_fused_exp_0:9": [trace(99)],  # of another graph
    }
    assert steps(nodes, traces) == [
        GraphStep(0, "aten::mm", False, ["mm"], ["/a b/model.py:3"], ["model.py:3"], 0),
        GraphStep(
            1,
            "cpp_fused_exp_0",
            True,
            ["exp", "add"],
            ["/a b/model.py:4", ""],
            ["model.py:4", "model.py:5"],
            384,
        ),
        GraphStep(2, "aten::sort", False, [], [], [], 0),
        GraphStep(3, "cpp_fused_exp_0", True, [], [], ["model.py:7"], 384),
    ]


def test_a_line_inside_torch_counts_only_without_a_line_of_the_program() -> None:
    (first, *_) = steps({}, {"extern_kernels.mm:1": [INSIDE]})
    assert first.lines == [f"{torch.__path__[0]}/nn/functional.py:9"]


AHEAD_OF_TIME = """
    // [Provenance debug handles] aoti_torch_cpu_addmm_out:1
    static constexpr int64_t int_array_2[] = {256L, 512L};
    // [Provenance debug handles] cpp_fused_gelu_0:2
    cpp_fused_gelu_0((float*)(buf0));
"""
ANNOTATED = """
        # File: /a/model.py:3 in forward, code: y = self.linear(x)
        addmm: "f32[8, 4][4, 1]cpu" = torch.ops.aten.addmm.default(bias, arg0_1, permute)

        # Annotation: {'method': 'gelu', 'more': {}} File: /a/model.py:4 in forward, code: gelu(y)
        mul: "f32[8, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(addmm, 0.5)
        # Annotation: {'method': 'dispatch'} No stacktrace found for following nodes
        add: "f32[8, 4][4, 1]cpu" = torch.ops.aten.add.Tensor(mul, 0.5)
"""


def test_the_calls_of_a_package_have_lines_and_annotations_do_not_hide_them() -> None:
    nodes = {"aoti_torch_cpu_addmm_out:1": ["addmm"], "cpp_fused_gelu_0:2": ["mul", "add"]}
    assert list(inductor_steps(AHEAD_OF_TIME, ANNOTATED, nodes, {})) == [
        GraphStep(0, "aoti_torch_cpu_addmm_out", False, ["addmm"], ["/a/model.py:3"], [], 0),
        GraphStep(1, "cpp_fused_gelu_0", True, ["mul", "add"], ["/a/model.py:4", ""], [], 0),
    ]
