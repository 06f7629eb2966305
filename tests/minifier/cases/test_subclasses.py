"""A case keeps a tensor subclass as its plain parts and what rebuilds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured, targets
from subclasses import PLACEMENTS, Doubling, Quantised, fake_ranks, jagged, placed, two
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.two_tensor import TwoTensor

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case, CaseInput, clone_values, size_at_capture
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.subclasses.parts import plain_values
from tcdebug.minifier.cases.subclasses.text import NoText, literal
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.reduction.details.plain_inputs import PlainInputs
from tcdebug.minifier.reduction.reducer import DETAILS, OPERATORS
from tcdebug.minifier.repros.inputs_text import InputsText
from tcdebug.minifier.repros.judge.calls import run as run_in_repro
from tcdebug.minifier.repros.judge.comparison import compare as compare_in_repro

INTEGERS = torch.tensor([[1, 2], [3, 4]], dtype=torch.int8)


def case_of(*values: Any) -> Case:
    """Return a case whose graph returns its inputs."""
    graph = fx.Graph()
    names = [f"x{k}" for k in range(len(values))]
    graph.output(tuple(graph.call_method("neg", (graph.placeholder(name),)) for name in names))
    inputs = tuple(CaseInput(name, value) for name, value in zip(names, values, strict=True))
    return Case(fx.GraphModule({}, graph), inputs)


def rebuilt(case: Case) -> list[Any]:
    """Return the inputs that the text of a repro creates."""
    text = InputsText.of(case, store=False, inference=False)
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(["import sys", *text.rebuilt.imports, text.text(has_data=False)]), namespace)
    made: list[Any] = namespace["inputs"]()
    return made


def assert_same(made: Sequence[Any], values: Sequence[Any]) -> None:
    assert [type(value) for value in made] == [type(value) for value in values]
    for one, other in zip(made, values, strict=True):
        assert (one.requires_grad, one.is_leaf) == (other.requires_grad, other.is_leaf)
        assert isinstance(one, torch.nn.Parameter) == isinstance(other, torch.nn.Parameter)
        pairs = zip(plain_values([one]), plain_values([other]), strict=True)
        for ours, theirs in pairs:
            assert ours is not theirs or isinstance(ours, str)
            equal = torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
            assert equal


def values_of_all_kinds() -> list[Any]:
    with torch.enable_grad():
        computed = two(2, 3).requires_grad_() * 2
    return [
        two(2, 3), two(3, 2).requires_grad_(), computed, torch.nn.Parameter(two(2, 2)),
        TwoTensor(two(2, 2), two(2, 2)), two(2, 3).t(), jagged(3, 5), jagged(1, 2, gradient=True),
        torch.nn.Parameter(Quantised(INTEGERS, torch.rand(2, 1), ("rows", 8, None)), False),
    ]  # fmt: skip


def test_a_copy_has_the_class_the_parts_and_the_gradient() -> None:
    values = values_of_all_kinds()
    assert_same(clone_values(values), values)


def test_the_text_of_a_repro_creates_the_same_tensors() -> None:
    values = values_of_all_kinds()
    assert_same(rebuilt(case_of(*values)), values)


@pytest.mark.parametrize("copied", [clone_values, lambda values: rebuilt(case_of(*values))])
def test_nested_tensors_that_share_offsets_share_them_again(
    copied: Callable[[Sequence[Any]], list[Any]],
) -> None:
    one = jagged(3, 5)
    first, second, other = copied([one, one * 2, jagged(3, 5)])
    assert torch.equal((first + second).values(), one.values() * 3)
    with pytest.raises(RuntimeError):
        first + other


def test_a_tensor_that_is_passed_twice_is_rebuilt_once() -> None:
    value = two(2, 2)
    for made in (clone_values([value, value]), rebuilt(case_of(value, value))):
        assert made[0] is made[1]


def test_a_key_depends_on_contents_and_context() -> None:
    data, scale = INTEGERS, torch.ones(2, 1)
    keys = {
        case_of(value).key
        for value in (
            Quantised(data, scale, 1), Quantised(data, scale, 2), Quantised(data * 2, scale, 1),
            Quantised(data, scale * 2, 1), Quantised(data, scale, 1).detach(),
        )
    }  # fmt: skip
    assert len(keys) == 4


def test_distributed_tensors_are_rebuilt_with_their_mesh_and_placement() -> None:
    with fake_ranks(4) as mesh:
        values = [placed(mesh, placement) for placement in PLACEMENTS]
        values.append(placed(mesh, PLACEMENTS[0]).detach().requires_grad_())
        made = rebuilt(case_of(*values))
        assert_same(made, values)
        assert_same(clone_values(values), values)
        for one, other in zip(made, values, strict=True):
            assert isinstance(one, DTensor)
            layout = (other.placements, other.shape, other.stride(), other.device_mesh.size())
            assert (one.placements, one.shape, one.stride(), one.device_mesh.size()) == layout


def test_a_class_of_the_script_is_found_where_the_script_has_run() -> None:
    kind = type("Scripts", (Quantised,), {"__module__": "__main__"})
    value = kind(INTEGERS, torch.ones(2, 1), None)
    text = InputsText.of(case_of(value), store=False, inference=False).text(has_data=False)
    assert "sys.modules['__main__'].Scripts.__tensor_unflatten__(" in text


def test_what_has_no_text_is_named() -> None:
    value = Quantised(INTEGERS, torch.ones(2, 1), object())
    with pytest.raises(NoText, match="no text for object"):
        InputsText.of(case_of(value), store=False, inference=False)


def test_literals_are_python() -> None:
    value = {"a": (1, [2.5, None]), 3: torch.float16, "d": torch.device("cpu"), "t": torch.Tensor}
    assert eval(literal(value), {"torch": torch}) == value
    assert math.isnan(eval(literal(math.nan)))


def test_a_class_that_only_overrides_functions_becomes_a_plain_tensor() -> None:
    x = torch.ones(2).as_subclass(Doubling)
    weight = torch.nn.Parameter(torch.ones(2))
    case = captured(lambda x, w: torch.add(x, w).sin(), x, weight)
    assert [type(value) for value in case.values()] == [torch.Tensor, torch.nn.Parameter]
    assert targets(case) == ["add", "mul", "sin"]
    torch.testing.assert_close(case.module(*case.values())[0], torch.full((2,), math.sin(4.0)))


def negated(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph wrongly: the sine of AOTAutograd's graph becomes its opposite."""
    for node in module.graph.nodes:
        if node.target in (torch.ops.aten.sin.default, torch.ops.aten.cos.default):
            users = list(node.users)
            with module.graph.inserting_after(node):
                opposite = module.graph.call_function(torch.ops.aten.neg.default, (node,))
            for user in users:
                user.replace_input_with(node, opposite)
    module.recompile()
    return module


def judged(case: Case, folder: Path, backend: Any) -> Outcome:
    target, name = backends.target(backend), str(folder / "case.py")
    return judge(case, target, Toggles(), lambda phase: None, name)


def sine(x: Any, y: Any) -> Any:
    return torch.relu((x + y).sin())


def pairs_of_all_kinds() -> list[tuple[Any, Any]]:
    nested = jagged(3, 5, gradient=True)
    return [(two(2, 3).requires_grad_(), two(2, 3)), (nested, nested.detach() * 2)]


@pytest.mark.parametrize("kind", [0, 1])
def test_right_results_and_gradients_pass(kind: int, tmp_path: Path) -> None:
    case = captured(sine, *pairs_of_all_kinds()[kind])
    assert judged(case, tmp_path, "aot_eager").kind is Kind.OK


@pytest.mark.parametrize(("kind", "part"), [(0, "a"), (1, "_values")])
def test_a_wrong_part_is_named(kind: int, part: str, tmp_path: Path) -> None:
    case = captured(sine, *pairs_of_all_kinds()[kind])
    outcome = judged(case, tmp_path, aot_autograd(fw_compiler=negated))
    assert (outcome.signature, outcome.output) == ("forward | wrong value", 0)
    assert outcome.message.startswith(f"output 0.{part}: ")


def test_a_wrong_gradient_of_a_part_is_named(tmp_path: Path) -> None:
    case = captured(lambda x: x.sin().relu(), two(2, 3).requires_grad_())
    outcome = judged(case, tmp_path, aot_autograd(fw_compiler=lambda g, i: g, bw_compiler=negated))
    assert outcome.signature == "backward | wrong value"
    assert outcome.message.startswith("gradient 0.a: ")


def test_results_and_gradients_of_distributed_tensors_are_judged(tmp_path: Path) -> None:
    with fake_ranks(4) as mesh:
        x, y = (placed(mesh, PLACEMENTS[0]).detach().requires_grad_() for _ in range(2))
        case = captured(sine, x, y)
        assert judged(case, tmp_path, "aot_eager").kind is Kind.OK
        outcome = judged(case, tmp_path, aot_autograd(fw_compiler=negated))
        assert outcome.signature == "forward | wrong value"
        plain = PlainInputs().apply(case, PlainInputs().edits(case))
    assert plain is not None
    assert [tuple(value.shape) for value in plain.values()] == [(8, 4), (8, 4)]
    assert judged(plain, tmp_path, aot_autograd(fw_compiler=negated)).kind is Kind.WRONG


@pytest.mark.parametrize("kind", [0, 1])
def test_a_repro_compares_parts_and_their_gradients(kind: int) -> None:
    case = captured(sine, *pairs_of_all_kinds()[kind])

    def results(graph: Callable[..., Any]) -> dict[str, list[Any]]:
        return run_in_repro(graph, clone_values(case.values()), lambda phase: None)

    eager = results(case.module)
    assert compare_in_repro(eager, results(case.module), None, None) == ""
    wrong = results(lambda *values: [value.neg() for value in case.module(*values)])
    assert compare_in_repro(eager, wrong, None, None) == "forward | wrong value"
    del wrong["forward"]
    del eager["forward"]
    assert compare_in_repro(eager, wrong, None, None) == "backward | wrong value"


def test_a_graph_that_ends_with_summands_of_all_ranks_passes(tmp_path: Path) -> None:
    """A rank has the whole of the gradient, not a summand."""
    with fake_ranks(4) as mesh:
        x = placed(mesh, Replicate()).detach().requires_grad_()
        y = placed(mesh, Partial()).detach().requires_grad_()
        case = captured(lambda x, y: y * 2, x, y)
        assert judged(case, tmp_path, "aot_eager").kind is Kind.OK


def test_a_result_that_eager_has_not_waited_for_passes(tmp_path: Path) -> None:
    with fake_ranks(4) as mesh:
        x = placed(mesh, Partial()).detach().requires_grad_()

        def local(x: Any) -> Any:
            return x.redistribute(placements=[Replicate()], async_op=True).to_local()

        assert judged(captured(local, x), tmp_path, "aot_eager").kind is Kind.OK


def test_a_healthy_model_of_tensor_parallelism_passes(tmp_path: Path) -> None:
    with fake_ranks(4) as mesh:
        layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
        )
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = parallelize_module(layers, mesh, plan)
        case = captured(model, torch.randn(4, 8))
        assert judged(case, tmp_path, "aot_eager").kind is Kind.OK


def from_parts(
    part: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: Any = None
) -> DTensor:
    """Return a tensor whose parts the ranks have."""
    stride = None if shape is None else (shape[1], 1)
    made = DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)
    assert isinstance(made, DTensor)
    return made


def in_place(x: Any) -> Any:
    x.add_(1)
    return x.sin()


def test_healthy_graphs_of_nested_tensors_and_pairs_pass(tmp_path: Path) -> None:
    offsets, rows = torch.tensor([0, 3, 8]), torch.randn(8, 4, requires_grad=True)
    nested = torch.nested.nested_tensor_from_jagged
    with_lengths = nested(torch.randn(8, 4), offsets, lengths=torch.tensor([2, 3]))
    graphs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (in_place, (two(2, 3),)),
        (in_place, (jagged(3, 5),)),
        (lambda x: x.sin() * 2, (with_lengths,)),
        (lambda x: torch.softmax(x, -1).transpose(1, 2), (jagged(3, 5, gradient=True),)),
        (lambda x: x.to_padded_tensor(0.0) * 2, (jagged(3, 5, gradient=True),)),
        (lambda v, o: nested(v, o).sin().values(), (rows, offsets)),
        (lambda x, w: x @ w, (two(2, 3), torch.randn(3, 3, requires_grad=True))),
    ]
    for function, values in graphs:
        assert judged(captured(function, *values), tmp_path, "aot_eager") == Outcome(Kind.OK)


def test_healthy_graphs_of_distributed_tensors_pass(tmp_path: Path) -> None:
    with fake_ranks(4) as mesh:
        square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        sharded = placed(mesh, PLACEMENTS[0]).detach().requires_grad_()
        both = [PLACEMENTS[0], Replicate()]
        in_square = DTensor.from_local(torch.randn(2, 4), square, both, run_check=False)
        graphs: list[tuple[Callable[..., Any], DTensor]] = [
            (lambda x: (x * 2).sin(), in_square.detach().requires_grad_()),
            (lambda x: x.redistribute(placements=[Replicate()]).sin(), sharded),
            (lambda x: x.full_tensor() * x.sum().to_local(), sharded),
            (lambda x: torch.nn.functional.layer_norm(x, (4,)), sharded),
            (lambda x: x.redistribute(mesh, [Partial(), Replicate()][1:]).sin(), sharded),
            (lambda x: x.redistribute(square, both[::-1]).to_local() * 2, in_square),
            (lambda x: x.to_local(grad_placements=[Replicate()]).cos(), sharded),
            (lambda x: from_parts(x.to_local(), mesh, [Partial("avg")]).full_tensor(), sharded),
            (lambda x: from_parts(x.to_local(), square, both, shape=(4, 8)).tanh(), sharded),
        ]
        for function, value in graphs:
            assert judged(captured(function, value), tmp_path, "aot_eager").kind is Kind.OK


def test_a_mesh_among_the_inputs_has_a_text() -> None:
    with fake_ranks(4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        (made,) = rebuilt(case_of(mesh))
        assert (made.mesh.tolist(), made.mesh_dim_names) == ([[0, 1], [2, 3]], ("data", "model"))


def test_the_size_of_a_ragged_dimension_is_read_from_its_tensor(tmp_path: Path) -> None:
    x = jagged(3, 5)
    assert size_at_capture(x.size(1)) is not None
    case = captured(lambda x: x.sin().view(x.shape[0], x.shape[1], 2, 2), x)
    assert [i.name for i in case.inputs] == ["L_x_"]
    assert judged(case, tmp_path, "aot_eager").kind is Kind.OK
    outcome = judged(case, tmp_path, aot_autograd(fw_compiler=negated))
    assert outcome.message.startswith("output 0._values: ")


def test_plain_tensors_replace_all_subclasses() -> None:
    for x, y in pairs_of_all_kinds():
        case = captured(sine, x, y)
        plain = PlainInputs().apply(case, PlainInputs().edits(case))
        assert plain is not None
        assert [type(value) for value in plain.values()] == [torch.Tensor, torch.Tensor]
        assert [v.requires_grad for v in plain.values()] == [True, False]
        assert all(i.recipe is not None for i in plain.inputs)


def test_every_reduction_of_a_graph_of_subclasses_can_run() -> None:
    for x, y in [*pairs_of_all_kinds(), (two(2, 3).t(), two(3, 2).to(torch.bfloat16))]:
        case = captured(sine, x, y)
        for reduction in (*OPERATORS, *DETAILS):
            if (edits := reduction.edits(case)) and (made := reduction.apply(case, edits)):
                made.module(*clone_values(made.values()))
                assert made.key != case.key
