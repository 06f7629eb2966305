"""Tests matrix product templates on an NVIDIA GPU: their results, and which are chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from tcdebug.compiler.runtime.cuda import products
from tcdebug.compiler.runtime.cuda.timing import Measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32


def randn(*size: int, dtype: torch.dtype = f32) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


def programs(dtype: torch.dtype) -> Mapping[str, Callable[[], Program]]:
    """Built lazily, because there may be no GPU."""
    r: Callable[..., torch.Tensor] = lambda *size: randn(*size, dtype=dtype)  # noqa: E731
    return {
        "bias and GELU": lambda: (
            lambda x, w, b: F.gelu(x @ w + b),
            (r(256, 512), r(512, 384), r(384)),
        ),
        "ragged": lambda: (
            lambda x, w, b: F.relu(F.linear(x, w, b)),
            (r(3, 37, 101), r(75, 101), r(75)),
        ),
        "one row": lambda: (
            lambda x, a, b: F.silu(x @ a) * (x @ b),
            (r(1, 2048), r(2048, 512), r(512, 2048).t()),
        ),
        "batches": lambda: (
            lambda b, x, y: torch.baddbmm(b, x, y.transpose(1, 2), beta=0.5, alpha=2).relu(),
            (r(6, 1, 65), r(6, 130, 64), r(6, 65, 64)),
        ),
        "two results": lambda: (
            lambda x, w, y: (x @ w + y, (x @ w + y).relu()),
            (r(128, 64), r(64, 256), r(128, 256)),
        ),
        "made operands": lambda: (
            lambda x, w: ((x * 2) @ (w + 1)).relu(),
            (r(128, 64), r(64, 256)),
        ),
        "transposed": lambda: (
            lambda x, w: (x.t() @ w.t()).t().contiguous() + 1,
            (r(64, 130), r(70, 64)),
        ),
        "strided": lambda: (
            lambda x, w: (x[:, ::2] @ w[::2, 1:]).relu(),
            (r(64, 130), r(130, 70)),
        ),
        "nothing": lambda: (lambda x, w: (x @ w).relu(), (r(0, 64), r(64, 70))),
        "nothing to sum": lambda: (lambda x, w: (x @ w) + 1, (r(4, 0), r(0, 70))),
    }


NAMES = tuple(programs(f32))
IN_ONE_CHAIN = {"one row": 10.0}
"""Sums that eager computes in parts, and a template sequentially."""


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TCDEBUG_RUN_DIR", str(tmp_path / "run"))
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture
def templates_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the fastest template even if the library call is faster."""

    def fastest(measured: Measured) -> str:
        times = {n: t for n, t in measured.milliseconds.items() if n != products.EXTERN}
        return min(times, key=times.__getitem__)

    monkeypatch.setattr(products, "fastest", fastest)


def chosen(folder: Path) -> list[dict[str, Any]]:
    """Return the product events of a run."""
    lines = [x for f in (folder / "run").rglob("events*.jsonl") for x in f.read_text().splitlines()]
    return [e["data"] for e in map(json.loads, lines) if e["event"] == "product"]


def assert_as_exact_as_eager(
    function: Callable[..., Any], compiled: Any, given: Any, *, times: float = 4
) -> None:
    """Assert that the error is at most `times` that of eager: the order of a sum may differ."""
    doubles = tuple(x.double() for x in given)
    triples = zip(
        tree_leaves(compiled(*given)),
        tree_leaves(function(*given)),
        tree_leaves(function(*doubles)),
        strict=True,
    )
    for got, wanted, exact in triples:
        assert (got.dtype, got.shape, got.stride()) == (
            wanted.dtype, wanted.shape, wanted.stride(),
        )  # fmt: skip
        if got.numel():
            off, allowed = ((x.double() - exact).abs().max().item() for x in (got, wanted))
            assert off <= times * allowed + 1e-5, f"off by {off}, eager by {allowed}"


@pytest.mark.usefixtures("templates_taken")
@pytest.mark.parametrize("dtype", [f32, bf16, f16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_templates_compute_what_eager_does(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    function, given = programs(dtype)[name]()
    compiled = torch.compile(function, backend="tcdebug", options={"templates": True})
    assert_as_exact_as_eager(function, compiled, given, times=IN_ONE_CHAIN.get(name, 4))
    events = chosen(tmp_path)
    assert events and all(e["chosen"] != "extern" for e in events)
    assert [e["failed"] for e in events] == [{}] * len(events)


@pytest.mark.usefixtures("templates_taken")
def test_tf32_is_used_where_torch_allows_it(tmp_path: Path) -> None:
    function, given = programs(f32)["bias and GELU"]()
    torch.backends.cuda.matmul.allow_tf32 = True
    compiled = torch.compile(function, backend="tcdebug", options={"templates": True})
    assert_as_exact_as_eager(function, compiled, given)
    (kernel,) = (tmp_path / "run").rglob("kernels/*.py")
    assert 'input_precision="tf32"' in kernel.read_text()


@pytest.mark.usefixtures("templates_taken")
def test_one_kernel_serves_sizes_that_change(tmp_path: Path) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w + b)

    options = {"templates": True}
    compiled = torch.compile(function, backend="tcdebug", dynamic=True, options=options)
    for rows, depth, columns in ((37, 50, 70), (64, 33, 129), (512, 256, 1024), (2, 7, 16)):
        given = (randn(rows, depth), randn(depth, columns), randn(columns))
        assert_as_exact_as_eager(function, compiled, given)
    assert len(chosen(tmp_path)) == 1


@pytest.mark.usefixtures("templates_taken")
def test_places_beyond_32_bits() -> None:
    x, w = randn(70_000, 16, dtype=bf16), randn(16, 40_000, dtype=bf16)
    function = torch.compile(
        lambda x, w: (x @ w).relu(), backend="tcdebug", options={"templates": True}
    )
    last = slice(69_000, None)
    torch.testing.assert_close(function(x, w)[last], (x[last] @ w).relu())


@pytest.mark.usefixtures("templates_taken")
def test_halves_round_before_what_follows() -> None:
    x, w = randn(256, 128, dtype=bf16), randn(128, 256, dtype=bf16)
    compiled = torch.compile(
        lambda x, w: (x @ w).float() * 3, backend="tcdebug", options={"templates": True}
    )
    result = compiled(x, w) / 3
    assert torch.equal(result.to(bf16).float(), result)


@pytest.mark.usefixtures("templates_taken")
def test_templates_are_captured_in_cuda_graphs() -> None:
    function, given = programs(bf16)["bias and GELU"]()
    compiled = torch.compile(
        function, backend="tcdebug", options={"templates": True, "cudagraphs": True}
    )
    for _ in range(4):
        assert_as_exact_as_eager(function, compiled, given)


@pytest.mark.usefixtures("templates_taken")
def test_gradients_are_those_of_eager() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 72)
    ).cuda()
    x = randn(160, 64)

    def gradients(function: Callable[..., Any]) -> list[torch.Tensor]:
        model.zero_grad()
        function(x).pow(2).mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(model)
    result = gradients(torch.compile(model, backend="tcdebug", options={"templates": True}))
    for wanted, got in zip(expected, result, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_a_choice_is_measured_once_and_kept(tmp_path: Path) -> None:
    function, given = programs(bf16)["bias and GELU"]()
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(function, backend="tcdebug", mode="max-autotune-no-cudagraphs")(*given)
    first, second = chosen(tmp_path)
    assert (first["known"], second["known"]) == (False, True)
    assert first["milliseconds"] == second["milliseconds"]
    assert all(0 < t < 10 for t in first["milliseconds"].values())
    assert len(first["milliseconds"]) > 3


def test_measuring_leaves_random_numbers_and_memory_alone() -> None:
    function, given = programs(bf16)["bias and GELU"]()
    torch.cuda.manual_seed(3)
    expected = torch.randn(5, device="cuda")
    torch.cuda.manual_seed(3)
    compiled = torch.compile(function, backend="tcdebug", options={"templates": True})
    compiled(*given)
    assert torch.equal(torch.randn(5, device="cuda"), expected)
    before = torch.cuda.memory_allocated()
    compiled(*given)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.usefixtures("templates_taken")
def test_the_unit_switches_templates_off(tmp_path: Path) -> None:
    function, given = programs(bf16)["bias and GELU"]()
    options = {"templates": True, "off": ["codegen.template"]}
    compiled = torch.compile(function, backend="tcdebug", options=options)
    assert_as_exact_as_eager(function, compiled, given)
    (kernel,) = (tmp_path / "run").rglob("kernels/*.py")
    assert "tl.dot" not in kernel.read_text()


def test_a_large_result_of_odd_size_needs_little_memory_beside_it() -> None:
    """Logits are computed in chunks of 64 MiB, one at a time."""

    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, bias)

    given = randn(4096, 768, dtype=bf16), randn(30_001, 768, dtype=bf16), randn(30_001, dtype=bf16)
    compiled = torch.compile(function, backend="tcdebug")
    compiled(*given)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = compiled(*given)
    assert result.is_contiguous()
    size = result.numel() * result.element_size()
    assert torch.cuda.max_memory_allocated() - before < 1.5 * size
    torch.testing.assert_close(result, function(*given), rtol=2e-2, atol=0.3)


def test_a_tensor_that_only_backward_reads_keeps_its_gaps() -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight).float(), target)

    target = torch.randint(0, 30_001, (4096,), device="cuda")
    given = randn(4096, 768, dtype=bf16), randn(30_001, 768, dtype=bf16) * 0.02
    expected, found = (
        torch.autograd.grad(
            function(*(leaves := [g.clone().requires_grad_() for g in given]), target), leaves
        )
        for function in (loss, torch.compile(loss, backend="tcdebug"))
    )
    for wanted, made in zip(expected, found, strict=True):
        assert made.stride() == wanted.stride()
        torch.testing.assert_close(made, wanted, rtol=5e-2, atol=1e-5)
