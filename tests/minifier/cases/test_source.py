"""A case as Python text: it runs, equals the graph, and can be captured again."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import Recorded, captured, targets
from torch import fx
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint
from torch_versions import needs_torch

from tcdebug.minifier.cases.case import Case, CaseInput, clone_values, flatten
from tcdebug.minifier.cases.operators.autocast import blocks
from tcdebug.minifier.cases.source import Source, for_eager, load, module_source, readable_names
from tcdebug.minifier.judging.replay import run


def source_of(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> Source:
    return module_source(readable_names(captured(function, *args, dynamic=dynamic)).module)


def check(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> Source:
    """Return the text of a function's graph, after checking its results and its recapture."""
    case = readable_names(captured(function, *args, dynamic=dynamic))
    source = module_source(case.module)
    module = load(case, f"{id(case)}.py")
    recorded = Recorded()
    torch._dynamo.reset()
    again = torch.compile(load(case, f"{id(case)}-again.py"), backend=recorded, fullgraph=True)
    plain = case_results(lambda *values: function(*clone_values(args)), case)
    for call in (module, again):
        actual = case_results(call, case)
        torch.testing.assert_close(actual, plain, equal_nan=True)
    assert len(recorded.graphs) == 1
    return source


def case_results(call: Callable[..., Any], case: Case) -> list[Any]:
    torch.manual_seed(0)
    values = clone_values(case.values())
    return [o.detach() if isinstance(o, torch.Tensor) else o for o in flatten(call(*values))]


def standalone(source: Source) -> torch.nn.Module:
    """Return the module that the text creates with only its own imports and torch."""
    text = "\n".join(["import torch", *source.imports, source.text])
    namespace: dict[str, Any] = {"stored": lambda: dict(source.constants)}
    exec(compile(text, "standalone.py", "exec"), namespace)
    module: torch.nn.Module = namespace["Graph"]()
    return module


# -- plain graphs ---------------------------------------------------------------------------


def test_functions_methods_and_operators_read_as_they_were_written() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).sum(-1) * 2

    assert (
        source_of(function, torch.ones(2, 3), torch.ones(3, 4)).text
        == """\
class Graph(torch.nn.Module):
    def forward(self, x, w):
        matmul = x @ w
        gelu = torch.nn.functional.gelu(matmul)
        sum_1 = gelu.sum(-1)
        mul = sum_1 * 2
        return (mul,)
"""
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.chunk(2)[1].exp(),
        lambda x: x[1:, None, ..., -1],
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.clamp(x, -math.inf, math.inf).masked_fill(x > 0, math.nan),
        lambda x: x.masked_fill(x > 0, -math.inf),
        lambda x: x.to(torch.bfloat16).to(device="cpu", memory_format=torch.contiguous_format),
        lambda x: x + torch.zeros(3, device=torch.device("cpu"), dtype=torch.float64),
        lambda x: x * (1 + 2j),
        lambda x: torch.vmap(lambda row: row.sum())(x),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: x.add_(1).mul(x),
        lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: (x * 2, {"a": [x + 1]}),
    ],
)
def test_the_text_computes_what_the_function_does(function: Callable[..., Any]) -> None:
    source = check(function, torch.randn(3, 3))
    module = standalone(source)
    assert type(module).__name__ == "Graph"
    assert source.foreign == ()


def test_an_item_that_is_set_reads_as_a_statement() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0] = 1.0
        return y

    source = check(function, torch.zeros(3))
    assert "[0] = 1.0" in source.text


def test_sizes_are_read_from_tensors() -> None:
    source = check(lambda x: x.view(-1) * x.shape[1], torch.randn(3, 4), dynamic=True)
    assert ".size(1)" in source.text


def test_names_beyond_torch_are_imported() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(x > 0, -math.inf).to(torch.device("cpu"))

    source = source_of(function, torch.ones(3))
    assert "from math import inf" in source.imports
    assert "from torch import device" in source.imports
    assert "from math import nan" not in source.imports
    assert source_of(torch.sin, torch.ones(3)).imports == ()


def test_global_state_in_a_graph_is_in_the_text() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ y

    source = check(function, torch.randn(3, 3, requires_grad=True))
    assert "torch._C._set_grad_enabled(False)" in source.text
    assert "with torch.autocast('cpu', torch.bfloat16, True, None):" in source.text


def test_autocast_reads_as_nested_blocks() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with torch.autocast("cpu", enabled=False):
                z = x @ x
            with torch.autocast("cpu", dtype=torch.float16):
                pass
        return (y + z) @ x

    assert (
        check(function, torch.randn(3, 3)).text
        == """\
class Graph(torch.nn.Module):
    def forward(self, x):
        with torch.autocast('cpu', torch.bfloat16, True, None):
            y = x @ x
            with torch.autocast('cpu', None, False, None):
                z = x @ x
            with torch.autocast('cpu', torch.float16, True, None):
                pass
        add = y + z
        matmul_2 = add @ x
        return (matmul_2,)
"""
    )


def test_autocast_that_is_not_left_or_not_nested_stays_a_call() -> None:
    enter, leave = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
    graph = fx.Graph()
    x = graph.placeholder("x")
    first, second, third = (graph.call_function(enter, ("cpu", None, k, None)) for k in (0, 1, 1))
    product = graph.call_function(torch.matmul, (x, x))
    graph.call_function(leave, (first,))
    graph.call_function(leave, (second,))
    graph.output((product,))
    assert blocks(graph) == {}
    graph.erase_node(third)
    assert blocks(graph) == {second.name: "_exit_autocast_1"}
    lines = module_source(fx.GraphModule({}, graph)).text.splitlines()[2:]
    call = "torch.amp.autocast_mode."
    assert [line.removeprefix("        ") for line in lines] == [
        f"_enter_autocast = {call}_enter_autocast('cpu', None, 0, None)",
        "with torch.autocast('cpu', None, 1, None):",
        "    matmul = torch.matmul(x, x)",
        f"    _exit_autocast = {call}_exit_autocast(_enter_autocast)",
        "return (matmul,)",
    ]


def test_autocast_is_captured_again_for_each_value_of_a_number() -> None:
    graph = fx.Graph()
    x, factor = graph.placeholder("x"), graph.placeholder("factor")
    autocast = torch.amp.autocast_mode
    entered = graph.call_function(autocast._enter_autocast, ("cpu", torch.bfloat16, True, None))
    product = graph.call_function(torch.matmul, (x, x))
    scaled = graph.call_function(torch.mul, (product, factor))
    graph.call_function(autocast._exit_autocast, (entered,))
    graph.output((scaled,))
    inputs = (CaseInput("x", torch.ones(3, 3)), CaseInput("factor", 0.5))
    again = torch.compile(load(Case(fx.GraphModule({}, graph), inputs), "a.py"), backend=Recorded())
    for value in (0.5, 0.25, 0.75):
        (result,) = again(torch.ones(3, 3), value)
        torch.testing.assert_close(result.float(), torch.full((3, 3), 3 * value))
    assert not torch.is_autocast_enabled("cpu")


# -- names ----------------------------------------------------------------------------------


def names_of(*placeholders: str) -> list[str]:
    graph = fx.Graph()
    nodes = [graph.placeholder(p) for p in placeholders]
    graph.output((graph.call_function(torch.stack, (nodes,)),))
    case = Case(
        fx.GraphModule(torch.nn.Module(), graph),
        tuple(CaseInput(p, torch.full((2,), float(k))) for k, p in enumerate(placeholders)),
    )
    readable = readable_names(case)
    assert [float(i.value[0]) for i in readable.inputs] == list(range(len(placeholders)))
    loaded = load(readable, "n.py")
    assert torch.equal(loaded(*readable.values())[0], case.module(*case.values())[0])
    return [i.name for i in readable.inputs]


def test_prefixes_that_dynamo_adds_to_names_are_removed() -> None:
    assert names_of("L_self_modules_fc1_parameters_weight_", "L_x_", "G_table_") == [
        "fc1_weight", "x", "table",
    ]  # fmt: skip


def test_names_that_would_collide_are_numbered() -> None:
    assert names_of("L_x_", "G_x_", "L_self_buffers_x_") == ["x", "x_1", "x_2"]


def test_names_are_valid_in_python() -> None:
    assert names_of("L_0_", "L_class_", "L_self_modules_1_parameters_weight_", "L_self_") == [
        "x_0", "x_class", "x_1_weight", "x",
    ]  # fmt: skip


def test_names_that_the_script_uses_itself_are_avoided() -> None:
    assert names_of("L_torch_", "L_data_", "L_inf_") == ["torch_1", "data_1", "inf_1"]


def test_an_input_may_have_the_name_of_a_node() -> None:
    def function(add: torch.Tensor, mul: torch.Tensor, torch_: torch.Tensor) -> torch.Tensor:
        return (add + 1 + torch_) * add + mul

    check(function, torch.randn(3), torch.randn(3), torch.randn(3))


def planted(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_functions_defined_in_the_script_are_foreign() -> None:
    torch._dynamo.allow_in_graph(planted)
    source = check(lambda x: planted(x).tanh(), torch.ones(3))
    assert len(source.foreign) == 1
    assert source.foreign[0].endswith("planted")
    assert source.names[source.foreign[0]] is planted


def test_functions_of_the_main_script_are_not_mangled(monkeypatch: pytest.MonkeyPatch) -> None:
    """fx names them __main___f, which would become _Graph__main___f in a class."""
    monkeypatch.setattr(planted, "__module__", "__main__")
    torch._dynamo.allow_in_graph(planted)
    source = check(lambda x: planted(x).tanh(), torch.ones(3))
    assert source.foreign == ("main___planted",)
    assert "main___planted(x)" in source.text


def test_functions_of_packages_are_imported() -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(math.sqrt, (graph.placeholder("x"),)),))
    source = module_source(fx.GraphModule(torch.nn.Module(), graph))
    assert source.imports == ("from math import sqrt as math_sqrt",)
    assert source.foreign == ()
    assert standalone(source)(9.0) == (3.0,)


# -- constants ------------------------------------------------------------------------------


def constant_case(value: torch.Tensor, target: str = "c") -> Case:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, graph.get_attr(target))),))
    root = torch.nn.Module()
    *path, last = target.split(".")
    holder = root
    for part in path:
        holder.add_module(part, torch.nn.Module())
        holder = holder.get_submodule(part)
    if isinstance(value, torch.nn.Parameter):
        holder.register_parameter(last, value)
    else:
        holder.register_buffer(last, value)
    return Case(fx.GraphModule(root, graph), (CaseInput("x", torch.ones(2)),))


@pytest.mark.parametrize("target", ["c", "a.b.c"])
def test_constants_are_kept_beside_the_text(target: str) -> None:
    case = constant_case(torch.tensor([1.0, 2.0]), target)
    source = module_source(case.module)
    assert list(source.constants) == [f"self.{target}"]
    module = load(case, "c.py")
    assert module(*case.values())[0].tolist() == [2.0, 3.0]
    assert standalone(source)(*case.values())[0].tolist() == [2.0, 3.0]


def test_a_parameter_stays_a_parameter() -> None:
    case = constant_case(torch.nn.Parameter(torch.ones(2)))
    assert [n for n, _ in load(case, "p.py").named_parameters()] == ["c"]


def test_loaded_constants_are_copies() -> None:
    case = constant_case(torch.tensor([1.0, 2.0]))
    next(load(case, "d.py").buffers()).zero_()
    assert case.attributes()["c"].tolist() == [1.0, 2.0]


# -- graphs inside the graph -----------------------------------------------------------------


def test_a_checkpoint_reads_as_a_checkpoint() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: torch.sin(y @ w).relu(), x, use_reentrant=False).sum()

    source = check(function, torch.randn(3, 3, requires_grad=True), torch.randn(3, 3))
    assert (
        source.text
        == """\
class WrapBody0(torch.nn.Module):
    def forward(self, l_x_, l_w_):
        matmul = l_x_ @ l_w_
        sin = torch.sin(matmul)
        relu = sin.relu()
        return (relu,)


class Graph(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wrap_body_0 = WrapBody0()

    def forward(self, x, w):
        wrap_body_0 = self.wrap_body_0
        tag_activation_checkpoint = torch.utils.checkpoint.checkpoint(\
wrap_body_0, x, w, use_reentrant = False)
        getitem = tag_activation_checkpoint[0]
        sum_1 = getitem.sum()
        return (sum_1,)
"""
    )
    assert source.imports == ("import torch.utils.checkpoint",)
    standalone(source)(torch.ones(3, 3), torch.ones(3, 3))


def test_branches_inside_branches_are_classes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.max() > 1, lambda z: z.sin() * 2, lambda z: z.cos(), (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: y.exp(), (x,))

    for value in (torch.full((3,), 2.0), torch.full((3,), 0.5), torch.full((3,), -1.0)):
        torch._dynamo.reset()
        source = check(function, value)
    classes = [n.name for n in ast.parse(source.text).body if isinstance(n, ast.ClassDef)]
    assert len(classes) == 5
    assert classes[-1] == "Graph"
    assert torch.equal(standalone(source)(torch.full((3,), 0.5))[0], torch.full((3,), 0.5).cos())


def test_loops_are_captured_again() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,))

    check(function, torch.ones(3))


@needs_torch("2.13", "Dynamo refuses loops that write to what they read")
def test_loops_that_write_to_what_they_read_are_captured_again() -> None:
    def function(x: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        def unfinished(x: torch.Tensor) -> torch.Tensor:
            asked.add_(1)
            return x.sum() < 10

        (result,) = torch.while_loop(unfinished, lambda x: (x + 1,), (x,))
        return result

    with torch.inference_mode():
        source = check(function, torch.ones(3), torch.zeros(()))
    assert "mutated_arg_indices" not in source.text


@needs_torch("2.13", "Dynamo captures a hook as an autograd.Function")
@pytest.mark.parametrize("reads", [False, True])
def test_a_graph_whose_tensors_have_hooks_is_captured_again(reads: bool) -> None:
    def function(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        def hook(gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (scale.detach() if reads else 0.5)

        y = x.sin()
        y.register_hook(hook)
        return y * scale

    source = check(function, torch.ones(3, requires_grad=True), torch.full((3,), 4.0))
    x = torch.zeros(3, requires_grad=True)
    call = standalone(source)
    call(x, torch.full((3,), 4.0))[0].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [16.0 if reads else 2.0] * 3


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_captured_again() -> None:
    def function(q: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + i - j)

    check(function, torch.randn(1, 2, 16, 16))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention_whose_functions_read_tensors_is_captured_again(masked: bool) -> None:
    def function(q: torch.Tensor, bias: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        slope = bias.exp()

        def visible(b: Any, h: Any, i: Any, j: Any) -> Any:
            return j <= ends[i]

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + bias[i] * slope[j]

        mask = create_block_mask(visible, 1, 1, 16, 16, device="cpu") if masked else None
        return flex_attention(q, q, q, score_mod=score, block_mask=mask)

    ends = torch.arange(16).clamp(4)
    source = check(function, torch.randn(1, 2, 16, 16), torch.randn(16), ends)
    assert source.text.count("lambda *at: ") == 1 + masked


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_whose_mask_reads_a_dynamic_number_is_captured_again() -> None:
    def function(q: torch.Tensor, before: int) -> torch.Tensor:
        def visible(b: Any, h: Any, i: Any, j: Any) -> Any:
            return j <= i + before

        mask = create_block_mask(visible, 1, 1, 16, 16, device="cpu")
        return flex_attention(q, q, q, block_mask=mask)

    source = check(function, torch.randn(1, 2, 16, 16), 3, dynamic=True)
    assert "size = before.size(0)" in source.text  # else 3 would be a constant
    assert "lambda *at: mask_fn_0(*at, size)" in source.text


def test_a_scan_whose_step_reads_sizes_is_captured_again() -> None:
    """With dynamic sizes, the sizes that the step reads are arguments of the operator."""

    def function(init: torch.Tensor, xs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = carry * weight + x / init.shape[0]
            return total, total.clone()

        return torch._higher_order_ops.scan(step, init, xs, dim=0)[1]

    source = check(
        function, torch.ones(4), torch.ones(3, 4), torch.ones(4, requires_grad=True), dynamic=True
    )
    assert "combine_fn(*at[:-2], " in source.text
    assert ", at[-2], at[-1])" in source.text
    assert "from functools import partial" in source.imports


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_tensors_with_gradients_that_attention_reads_stay_arguments() -> None:
    """In eager, no gradient reaches a tensor that a score function reads."""

    def function(q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[i])

    graph = captured(function, torch.randn(1, 2, 16, 16), torch.randn(16, requires_grad=True))
    assert "lambda" not in module_source(graph.module).text


class Tripled(torch.autograd.Function):
    """Sine with its own gradient, and a second result without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        ctx.half = x * 0.5
        second = x > 0
        ctx.mark_non_differentiable(second)
        return (x * w).sin(), second

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * 3 * x + ctx.half, None


def test_an_autograd_function_keeps_its_gradient() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        first, second = Tripled.apply(x, w)
        return first + second

    x, w = torch.randn(3, requires_grad=True), torch.ones(3)
    source = check(function, x, w)
    assert "(torch.autograd.Function)" in source.text
    case = captured(function, x, w)
    plain, loaded = (run(call, case) for call in (function, load(case, "f.py")))
    assert len(plain.gradients) == 1
    assert not torch.allclose(plain.gradients[0], x.detach().cos())
    torch.testing.assert_close(loaded.gradients, plain.gradients)
    torch.testing.assert_close(run(standalone(source), case).gradients, plain.gradients)


# -- loading --------------------------------------------------------------------------------


def test_loaded_code_has_lines_for_tracebacks(tmp_path: Path) -> None:
    case = captured(lambda x: x.view(7), torch.ones(7))
    with pytest.raises(RuntimeError) as info:
        load(case, str(tmp_path / "shown.py"))(torch.ones(3))
    last = info.traceback[-1]
    assert str(last.path).endswith("shown.py")
    assert str(last.statement).strip() == "view = l_x_.view(7)"


def test_capturing_a_loaded_graph_gives_the_same_graph() -> None:
    x = torch.randn(3, 4)
    case = captured(lambda x: (x.relu() + x.shape[0]).sum(1), x, dynamic=True)
    torch._dynamo.reset()
    again = captured(load(case, "again.py"), x, dynamic=True)
    assert targets(again) == targets(case) == ["size", "relu", "add", "sum"]


def test_an_update_of_data_is_captured_again() -> None:
    def decayed(p: torch.Tensor) -> torch.Tensor:
        p.data.mul_(0.5)
        return p * p.data

    source = check(decayed, torch.nn.Parameter(torch.ones(2)))
    assert source.text.count("p.data") == 2


@pytest.mark.parametrize("times", [1, 2])
def test_an_assignment_to_data_is_captured_again(times: int) -> None:
    def updated(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        before = p.sum()
        for _ in range(times):
            p.data = p.data - 0.5 * g
        return (p * p).sum() + before

    source = check(updated, torch.nn.Parameter(torch.ones(2)), torch.ones(2))
    assert source.text.count("p.data = ") == times


def test_a_gradient_after_an_assignment_to_data_is_that_of_backward() -> None:
    """With AOTAutograd, `torch.autograd.grad` finds none."""

    def updated(p: torch.Tensor) -> torch.Tensor:
        p.data = p.data * 3
        return (p * p).sum()

    case = readable_names(captured(updated, torch.nn.Parameter(torch.ones(2))))
    torch._dynamo.reset()
    compiled = torch.compile(load(case, "data.py"), backend="aot_eager", fullgraph=True)
    (eager,), (found,) = run(load(case, "plain.py"), case).gradients, run(compiled, case).gradients
    assert found is not None and eager.tolist() == found.tolist()


def test_a_captured_checkpoint_draws_the_same_numbers_in_backward_in_eager() -> None:
    x = torch.ones(64, requires_grad=True)
    case = captured(lambda x: checkpoint(torch.dropout, x * x, 0.5, True, use_reentrant=False), x)
    (y,) = flatten(for_eager(case.module)(*case.values()))
    (gradient,) = torch.autograd.grad(y.sum(), [v for v in case.values() if v.requires_grad])
    assert torch.equal(gradient, 2 * y)
