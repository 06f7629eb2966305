"""Reading inductor's generated code."""

from __future__ import annotations

from tcdebug.compiler.events.schema import ExternCalled, KernelWritten
from tcdebug.minifier.trace.guards import count_guards, value_guards
from tcdebug.minifier.trace.inductor_code import generated_events

CODE = """
cpp_fused_relu_sum_0 = async_compile.cpp_pybinding(['const float*', 'double*', 'bool*'], r'''
        decoy(1)
''')

    def call(self, args):
        arg0_1, = args
        assert_size_stride(arg0_1, (8, 4), (4, 1))
        buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float64)
        # Topologically Sorted Source Nodes: [getattr_1, matmul], Original ATen: [aten.mm]
        extern_kernels.mm(arg0_1, arg0_1, out=buf0)
        buf1 = empty_strided_cpu((8, 4), (0, 1), torch.bool)
        cpp_fused_relu_sum_0(arg0_1, buf0, buf1)
        return (buf1, )
"""

SYMBOLIC = """
cpp_fused_0 = async_compile.cpp_pybinding(['const float*'], r'''
''')
        assert_size_stride(arg0_1, (s0, 4), (4, 1))
        cpp_fused_0(arg0_1, s0)
"""

UPDATING = """
cpp_fused_mul_0 = async_compile.cpp_pybinding(['float*', 'const double*'], r'''
extern "C"  void  kernel(float* in_out_ptr0,
                       const double* in_ptr0)
''')
triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1', '''
@triton_heuristics.pointwise(
    size_hints={'x': 32},
    triton_meta={'signature': {'in_out_ptr0': '*bf16', 'in_ptr0': '*fp32', 'xnumel': 'i32', \
'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0)},
)
''', device_str='cuda')
        buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
        buf1 = empty_strided_cuda((8, 4), (4, 1), torch.float64)
        cpp_fused_mul_0(buf0, buf1)
        triton_poi_fused_add_1.run(buf0, buf1, 32, stream=stream0)
"""

GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GLOBAL_STATE: ___check_global_state() against {"a":0}
| +- GuardManager: source=L['n'], accessed_by=FrameLocalsGuardAccessor(key='n')
| | +- EQUALS_MATCH: L['n'] == 2                          # y = x * n  # s.py:4 in f
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, \
device=None, requires_grad=True, size=[8, 8], stride=[8, 1])  # y = x * n  # s.py:4 in f
| | | +- ID_MATCH: ___check_obj_id(G['torch'], 14), type=<class 'module'>  # y = x  # s.py:4 in f
"""


def test_bytes_moved_are_those_of_the_arguments_and_broadcasts_count_once() -> None:
    kernels = [e for e in generated_events(CODE, "code.py") if isinstance(e, KernelWritten)]
    assert kernels == [
        KernelWritten("cpp_fused_relu_sum_0", "c++", [], 8 * 4 * 4 + 8 * 8 + 4, "code.py")
    ]


def test_updated_inputs_are_read_and_written_in_cpp_and_in_triton() -> None:
    kernels = [e for e in generated_events(UPDATING, "") if isinstance(e, KernelWritten)]
    assert [(k.name, k.language, k.moved) for k in kernels] == [
        ("cpp_fused_mul_0", "c++", 32 * (4 + 4 + 8)),
        ("triton_poi_fused_add_1", "triton", 32 * (2 + 2 + 4)),
    ]


def test_bytes_of_symbolic_sizes_are_unknown() -> None:
    (kernel,) = generated_events(SYMBOLIC, "")
    assert isinstance(kernel, KernelWritten)
    assert kernel.moved == 0


def test_a_library_call_has_the_nodes_above_it() -> None:
    calls = [e for e in generated_events(CODE, "") if isinstance(e, ExternCalled)]
    assert [(c.op, c.node) for c in calls] == [("aten.mm", "getattr_1, matmul")]


def test_guards_are_counted_and_those_on_values_are_listed() -> None:
    assert count_guards(GUARDS) == 4
    assert value_guards(GUARDS) == [
        "EQUALS_MATCH: L['n'] == 2",
        "TENSOR_MATCH: L['x'] is float32 requires_grad=True, size=[8, 8], stride=[8, 1]",
    ]
