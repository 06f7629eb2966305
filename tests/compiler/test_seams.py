"""One test for each private name of torch that the compiler uses.

A failure here names the part of `tcdebug.compiler.seams` that a new torch has changed.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from programs import f32
from stages import capture
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._sympy import functions as torch_functions

import tcdebug.compiler
from tcdebug.compiler import seams

SOURCE = Path(tcdebug.compiler.__file__).parent


def test_aot_autograd_takes_these_arguments_and_calls_the_compilers() -> None:
    called: list[str] = []

    def compiler(name: str) -> Callable[..., Any]:
        def compile_(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            called.append(name)
            return seams.boxed(lambda args: module(*args))

        return compile_

    backend = seams.aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions={},
        partition_fn=seams.default_partition,
        keep_inference_input_mutations=True,
    )
    f = torch.compile(lambda x: (x * 2).sum(), backend=backend)
    f(torch.ones(3))
    f(torch.ones(3, requires_grad=True)).backward()
    assert called == ["inference", "forward", "backward"]


def test_a_boxed_callable_takes_one_list_which_it_may_empty() -> None:
    given: list[Any] = []

    def compiler(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(args: list[Any]) -> Sequence[Any]:
            given.append(type(args))
            taken = list(args)
            args.clear()
            result: Sequence[Any] = module(*taken)
            return result

        return seams.boxed(run)

    backend = seams.aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
    assert torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert given == [list]


def test_forward_reports_the_strides_of_saved_tensors_and_backward_is_compiled_for_them() -> None:
    asked: list[bool] = []
    given: list[list[tuple[int, ...]]] = []

    def forward(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        asked.extend(seams.takes_strides(seen) for seen in (0, 1, 2, 3))
        results = module.graph.output_node().args[0]
        assert [r.meta["val"].stride() for r in results[2:]] == [(3, 1), (3, 1)]
        seams.report_strides([None, None, (7, 1), None])
        return seams.boxed(lambda args: module(*args))

    def backward(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        given.append([value.stride() for value in inputs])
        return seams.boxed(lambda args: module(*args))

    backend = seams.aot_autograd(
        fw_compiler=forward, bw_compiler=backward, partition_fn=seams.default_partition
    )
    x = f32(2, 3).requires_grad_()
    results = torch.compile(lambda t: (t.sin().exp(), t * 2), backend=backend)(x)
    sum(r.sum() for r in results).backward()
    assert asked == [False, False, True, False]
    assert given == [[(7, 1), (3, 1), (3, 1), (3, 1)]]
    assert not seams.takes_strides(2)


def test_the_compile_id_is_that_of_the_current_compile() -> None:
    seen: list[str] = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        seen.append(seams.compile_id())
        return module.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert seen == ["0/0"]
    assert seams.compile_id() == ""


def test_core_aten_decompositions_is_a_table_of_overloads() -> None:
    table = dict(seams.core_aten_decompositions())
    assert torch.ops.aten.addcmul.default in table
    assert all(callable(function) for function in table.values())
    assert len(table) > 300


def test_get_decompositions_takes_packets() -> None:
    table = seams.get_decompositions([torch.ops.aten._softmax])
    assert torch.ops.aten._softmax.default in table


def test_the_batch_norm_helper_takes_these_arguments_and_gives_five_results() -> None:
    assert list(inspect.signature(seams.native_batch_norm_helper).parameters) == [
        "input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps",
        "functional",
    ]  # fmt: skip
    x = f32(2, 3, 4)
    found = seams.native_batch_norm_helper(x, None, None, None, None, True, 0.1, 1e-5, True)
    assert [type(f).__name__ for f in found] == ["Tensor"] * 3 + ["NoneType"] * 2
    torch.testing.assert_close(
        found[0], torch.nn.functional.batch_norm(x, None, None, None, None, True)
    )


@pytest.mark.parametrize(
    "partition", [seams.default_partition, seams.min_cut_rematerialization_partition]
)
def test_a_partition_gives_forward_and_backward(partition: Callable[..., Any]) -> None:
    seen: list[tuple[str, str]] = []

    def spy(joint: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        forward, backward = partition(joint, inputs, **kwargs)
        seen.append((type(forward).__name__, type(backward).__name__))
        return forward, backward

    def compiler(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return seams.boxed(lambda args: module(*args))

    backend = seams.aot_autograd(fw_compiler=compiler, bw_compiler=compiler, partition_fn=spy)
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda t: t.sin().sum(), backend=backend)(x).backward()
    torch.testing.assert_close(x.grad, torch.ones(3).cos())
    assert seen == [("GraphModule", "GraphModule")]


def test_the_memory_format_of_a_tensor() -> None:
    x = f32(2, 3, 4, 5)
    assert seams.suggest_memory_format(x) == torch.contiguous_format
    last = x.contiguous(memory_format=torch.channels_last)
    assert seams.suggest_memory_format(last) == torch.channels_last
    assert seams.suggest_memory_format(x.transpose(1, 3)) == torch.contiguous_format


def test_nodes_have_the_sizes_that_become_known_when_they_run() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        captured = capture(lambda x: x.nonzero() + 1, torch.eye(3)[0])
    (graph,) = captured.aten
    (node,) = [n for n in graph.graph.nodes if n.target is torch.ops.aten.nonzero.default]
    assert list(seams.unbacked_bindings(node).values()) == [(("call", "size"), ("item", 0))]


def test_key_paths_have_the_expected_kinds() -> None:
    from torch.fx.experimental import symbolic_shapes  # noqa: PLC0415 # the only use
    from torch.utils._pytree import SequenceKey  # noqa: PLC0415 # the only use

    path = (
        symbolic_shapes.CallMethodKey("size"),
        SequenceKey(2),
        symbolic_shapes.DivideByKey(4),
        symbolic_shapes.ConvertIntKey(),
    )
    assert seams.path_steps(path) == (("call", "size"), ("item", 2), ("divide", 4))


def test_an_unknown_kind_of_key_is_an_error() -> None:
    with pytest.raises(NotImplementedError, match="the key str"):
        seams.path_steps(("x",))


def test_sizes_are_sympy_expressions_with_a_shape_env_that_bounds_symbols() -> None:
    captured = capture(lambda x: x * 2, torch.ones(5), dynamic=True)
    (graph,) = captured.lowered
    (symbol,) = [i.symbol for i in graph.inputs if i.symbol is not None]
    assert symbol.lower == 2


def test_the_sympy_functions_of_torch_have_the_expected_names() -> None:
    for name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing", "PowByNatural"):
        assert issubclass(getattr(torch_functions, name), sympy.Function), name
    assert torch_functions.Max is not None
    assert torch_functions.Min is not None


def test_operators_have_schemas_tags_and_namespaces() -> None:
    op = torch.ops.aten.add_.Tensor
    assert isinstance(op, torch._ops.OpOverload)
    assert op._schema.is_mutable
    assert op._schema.arguments[0].alias_info.is_write
    assert op.namespace == "aten"
    assert torch.Tag.nondeterministic_seeded in torch.ops.aten.rand.default.tags
    assert str(op) == "aten.add_.Tensor"


@pytest.mark.parametrize("module", ["direct_calls", "seams"])
def test_a_process_may_import_a_file_of_private_names_first(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import tcdebug.compiler.{module}"], check=True)


def test_only_two_files_import_private_modules_of_torch() -> None:
    allowed = {"lower/interface/sizes.py"}  # torch.utils._sympy has the types of sizes, see above
    private = re.compile(
        r"^\s*(from torch(\.\w+)*\._\w+|from torch import _|import torch\._)", re.M
    )
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if private.search(path.read_text())
    }
    assert found - allowed == {"direct_calls.py", "seams.py"}


def test_the_compiler_imports_neither_inductor_nor_higher_layers() -> None:
    banned = re.compile(
        r"^\s*(from|import) (torch\._inductor|tcdebug\.(?!compiler)\w+|rich|hypothesis)", re.M
    )
    assert [p.name for p in SOURCE.rglob("*.py") if banned.search(p.read_text())] == []


def test_the_reasons_of_graph_breaks_and_recompiles_are_known() -> None:
    breaks: list[Any] = []
    reasons: list[str] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        breaks.append(seams.graph_break(module))
        reasons.append(seams.recompile_reason())
        return module

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = torch.compile(function, backend=backend, dynamic=False)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    assert breaks[0] is not None
    reason, where = breaks[0]
    assert "torch._dynamo.graph_break()" in reason
    assert where["name"] == "function"
    assert breaks[1] is None
    assert reasons[:2] == ["", ""]
    assert "size mismatch at index 0. expected 3, actual 4" in reasons[2]


def test_real_tensors_are_computed_during_a_compile() -> None:
    with FakeTensorMode():
        assert isinstance(torch.ones(2), FakeTensor)
        with seams.real_tensors():
            assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
            assert not torch.is_grad_enabled()


def test_no_gradient_is_recorded_below_autograd() -> None:
    x = torch.ones(2, requires_grad=True)
    with seams.below_autograd():
        assert not torch.sin(x).requires_grad
    assert torch.sin(x).requires_grad


def test_a_compile_with_gradients_does_not_import_inductor() -> None:
    """Importing its lowerings takes as long as the rest of a warm start."""
    script = (
        "import sys, torch\n"
        "f = torch.compile(lambda x: (x.sigmoid() * x.sigmoid()).sum(), backend='tcdebug')\n"
        "f(torch.ones(3, requires_grad=True)).backward()\n"
        "heavy = ('compile_fx', 'lowering', 'scheduler', 'pattern_matcher')\n"
        "sys.exit(', '.join(m for m in heavy if f'torch._inductor.{m}' in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
