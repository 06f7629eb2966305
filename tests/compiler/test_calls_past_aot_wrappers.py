"""runtime.direct_calls: inference graphs bypass AOTAutograd's wrappers, with no visible effect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import assert_same, copies
from programs import f32
from torch import fx
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from tcdebug.compiler import backend as public
from tcdebug.compiler import direct_calls, seams

Function = Callable[..., Any]
w, b = f32(4, 3), f32(4)


class Compiled:
    """A compiled function. `direct` records which graphs bypass the wrappers.

    `made_with` are options of the compiler; the others are those of torch.compile.
    """

    def __init__(
        self, function: Function, made_with: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.direct: list[bool] = []
        self.options = made_with
        self.run = torch.compile(function, backend=self.backend, **options)

    def backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        """The compiler."""
        made = public.backend(module, inputs, options=self.options)
        inner: Any = made._torchdynamo_orig_callable  # type: ignore[attr-defined] # torch.compiler.disable's
        cells = [c.cell_contents for c in inner.__closure__ or ()]
        texts = [getattr(f, "__code__", None) for f in (inner, *cells)]
        self.direct.append(any(t.co_filename.endswith(" direct>") for t in texts if t))
        return made


def kernels(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.exp() + 1, x.sum(1)


def products(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, w, b).relu().view(-1, 2)


def detached(x: torch.Tensor) -> torch.Tensor:
    return x.detach() @ w.t()


@pytest.mark.parametrize("function", [kernels, products])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_graph_for_which_the_wrappers_do_nothing_bypasses_them(
    function: Function, mode: Callable[[], AbstractContextManager[None]], dynamic: bool | None
) -> None:
    compiled = Compiled(function, dynamic=dynamic)
    with mode():
        for rows in (2, 6):
            x = f32(rows, 3)
            assert_same(compiled.run(x), function(x))
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
    assert set(compiled.direct) == {True}


def test_parameters_without_gradients_are_not_an_obstacle() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    compiled = Compiled(model)
    with torch.no_grad():
        assert_same(compiled.run(f32(2, 3)), model(f32(2, 3)))
    assert compiled.direct == [True]


def test_results_need_no_gradient_if_inputs_need_none() -> None:
    compiled = Compiled(detached)
    x = f32(2, 3).requires_grad_()
    result = compiled.run(x)
    assert compiled.direct == [True]
    assert_same(result, detached(x))
    assert not result.requires_grad
    assert torch.is_grad_enabled()


def test_gradients_are_enabled_again_after_an_error() -> None:
    def f(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return (x @ w.t())[places]

    compiled = Compiled(f)
    assert_same(compiled.run(f32(2, 3), torch.tensor([1])), f(f32(2, 3), torch.tensor([1])))
    with pytest.raises(IndexError, match="found by cpp_"):
        compiled.run(f32(2, 3), torch.tensor([2]))
    assert torch.is_grad_enabled()
    assert compiled.direct == [True]


def adds_in_place(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


def view_of_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.view(-1), x * 2


def view_and_base(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y.view(-1)


@torch.library.custom_op("tcdebug_direct::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def custom(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.tcdebug_direct.twice(x) + 1


@pytest.mark.parametrize(
    ("function", "direct"),
    [(adds_in_place, False), (view_of_input, False), (custom, False), (view_and_base, True)],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_graph_for_which_the_wrappers_do_something_keeps_them(
    function: Function, direct: bool, mode: Callable[[], AbstractContextManager[None]]
) -> None:
    compiled = Compiled(function)
    with mode():
        (mine,), (theirs,) = copies([f32(2, 3)]), copies([f32(2, 3)])
        results, expected = compiled.run(mine), function(theirs)
        assert_same(results, expected)
        assert_same(mine, theirs)
        assert mine._version == theirs._version
        if isinstance(expected, tuple):
            found = [r.untyped_storage().data_ptr() == mine.data_ptr() for r in results]
            wanted = [e.untyped_storage().data_ptr() == theirs.data_ptr() for e in expected]
            assert found == wanted
            first, second = (r.untyped_storage().data_ptr() for r in results)
            assert (first == second) == (function is view_and_base)
    assert compiled.direct == [direct]


@pytest.mark.parametrize("function", [kernels, products])
def test_tensor_subclasses_are_unwrapped(function: Function) -> None:
    compiled = Compiled(function)
    x = TwoTensor(f32(2, 3), f32(2, 3) + 1)
    results, expected = compiled.run(x), function(x)
    for part in ("a", "b"):
        assert_same(
            [getattr(r, part) for r in torch.utils._pytree.tree_leaves(results)],
            [getattr(e, part) for e in torch.utils._pytree.tree_leaves(expected)],
        )
    assert compiled.direct == [False]


def test_the_rows_of_a_nested_tensor_may_have_any_length() -> None:
    """Torch gives no bounds for the size of a ragged dimension."""
    x = torch.nested.nested_tensor([f32(3, 4), f32(5, 4)], layout=torch.jagged)
    compiled = torch.compile(lambda x: torch.sin(x + x).relu(), backend="tcdebug")
    assert_same([compiled(x).values()], [torch.sin(x + x).relu().values()])


def test_a_graph_under_autocast_agrees_with_eager_under_autocast() -> None:
    compiled = Compiled(products)
    x = f32(2, 3)
    assert_same(compiled.run(x), products(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = compiled.run(x)
        assert result.dtype == torch.bfloat16
        assert_same(result, products(x))
    assert_same(compiled.run(x), products(x))
    assert compiled.direct == [True, True]


def test_function_transforms_see_no_difference() -> None:
    compiled = Compiled(kernels)
    compiled.run(f32(2, 3))
    xs = torch.stack([f32(2, 3), f32(2, 3) + 1])
    assert_same(torch.vmap(compiled.run)(xs), torch.vmap(kernels)(xs))
    gradient = torch.func.grad(lambda x: compiled.run(x)[0].sum())
    assert_same(gradient(xs[0]), xs[0].exp())


def test_dynamic_sizes_of_results_are_marked_as_aot_autograd_does() -> None:
    compiled = Compiled(kernels, dynamic=True)
    reference = torch.compile(kernels, backend="aot_eager", dynamic=True)
    found = [vars(r) for r in compiled.run(f32(4, 3))]
    assert found == [vars(r) for r in reference(f32(4, 3))]
    assert [list(each.values()) for each in found] == [[{0, 1}], [{0}]]
    assert compiled.direct == [True]


def test_with_an_unknown_torch_no_graph_bypasses_the_wrappers_and_an_event_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(direct_calls, "WRAPPERS", {})
    options = {"log": True, "run_dir": str(tmp_path)}
    compiled = Compiled(kernels, made_with=options)
    assert_same(compiled.run(f32(2, 3)), kernels(f32(2, 3)))
    assert compiled.direct == [False]
    (path,) = tmp_path.glob("events*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [e["data"] for e in events if e["event"] == "fallback"] == [
        {
            "what": "calls through AOTAutograd",
            "reason": f"AOTAutograd's wrappers in torch {torch.__version__} are not known",
        }
    ]


def test_the_wrappers_of_every_supported_torch_are_known() -> None:
    assert list(direct_calls.WRAPPERS) == ["2.11", "2.12", "2.13", "2.14", "2.15"]


def test_other_wrappers_of_torch_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = seams.aot_module_simplified

    def more(*args: Any, **kwargs: Any) -> Function:
        made = torchs(*args, **kwargs)
        return wraps(made)(lambda *given: [each + 1 for each in made(*given)])

    monkeypatch.setattr(seams, "aot_module_simplified", more)
    compiled = Compiled(kernels)
    assert_same(compiled.run(f32(2, 3)), tuple(each + 1 for each in kernels(f32(2, 3))))
    assert compiled.direct == [False]


@pytest.mark.parametrize("weighs", [False, True])
def test_a_module_with_weights_passes_them_to_its_graph(weighs: bool) -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(f32(3), requires_grad=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * (self.weight if weighs else 2) + 1,)

    compiled, module = Compiled(kernels), fx.symbolic_trace(Scale())
    with tracing(TracingContext(FakeTensorMode())):
        run = compiled.backend(module, [f32(2, 3)])
    assert_same(run(f32(2, 3)), module(f32(2, 3)))
    assert compiled.direct == [not weighs]


def test_ddp_buckets_are_compiled_one_by_one() -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    compiled = Compiled(model)
    buckets = DDPOptimizer(600_000, backend_compile_fn=compiled.backend, first_bucket_cap=300_000)
    run = torch.compile(model, backend=buckets.compile_fn)
    x = f32(2, 256)
    with torch.no_grad():
        assert_same([run(x), run(x)], [model(x), model(x)])
    assert len(compiled.direct) > 1
    assert_same(*([torch.autograd.grad(f(x).sum(), [*model.parameters()])] for f in (run, model)))


def test_a_vendor_compiler_is_called_as_torch_calls_it() -> None:
    def vendors(graph: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return graph.forward

    run = torch.compile(kernels, backend=public.get_backend(inference_compiler=vendors))
    assert_same(run(f32(2, 3)), kernels(f32(2, 3)))
