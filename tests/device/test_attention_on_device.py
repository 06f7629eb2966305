"""Attention with a mask that fused kernels refuse, on an NVIDIA GPU: skipped where there is none.

pytest tests/device
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

FUSED = "aten._scaled_dot_product_"
PRODUCT = "aten.bmm.default"
"""What attention is taken apart into where no kernel takes it."""


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path / "cache"))


def layers(q: torch.Tensor, seen: torch.Tensor) -> Any:
    """Two attentions with one mask, expanded over batch and keys as in BERT."""
    mask = seen.expand(q.shape[0], -1, q.shape[2], q.shape[2])
    first = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    return F.scaled_dot_product_attention(first + q, q, q, mask)


def calls(folder: Path) -> Counter[str]:
    """How often each operator is called, over all graphs of a run."""
    texts = [path.read_text() for path in folder.glob("events-*.jsonl")]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    return Counter(event["data"]["op"] for event in events if event["event"] == "extern")


def compiled(folder: Path, **options: Any) -> Callable[..., Any]:
    return torch.compile(layers, backend="tcdebug", options={"run_dir": str(folder), **options})


def tensors(length: int, *, gradient: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    q = torch.randn(4, 6, length, 64, device="cuda").bfloat16().requires_grad_(gradient)
    return q, torch.ones(1, 1, length, 1, device="cuda", dtype=torch.bool)


def assert_close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("length", [512, 77])
def test_it_is_eager_s_and_computed_by_a_fused_kernel(tmp_path: Path, length: int) -> None:
    inputs = tensors(length)
    assert_close(compiled(tmp_path)(*inputs), layers(*inputs))
    found = calls(tmp_path)
    assert sum(n for op, n in found.items() if op.startswith(FUSED)) == 2, found
    assert PRODUCT not in found, found


def test_without_the_pass_it_is_taken_apart(tmp_path: Path) -> None:
    inputs = tensors(512)
    assert_close(compiled(tmp_path, off="pregrad.dense_mask")(*inputs), layers(*inputs))
    assert not any(op.startswith(FUSED) for op in calls(tmp_path))


def test_gradients_are_eager_s_and_fused_too(tmp_path: Path) -> None:
    mine, theirs = tensors(512, gradient=True), tensors(512, gradient=True)
    theirs[0].data.copy_(mine[0].data)
    compiled(tmp_path)(*mine).float().square().mean().backward()
    layers(*theirs).float().square().mean().backward()
    assert mine[0].grad is not None and theirs[0].grad is not None
    scale = theirs[0].grad.abs().max()
    assert_close(mine[0].grad / scale, theirs[0].grad / scale)
    found = calls(tmp_path)
    backward = [op for op in found if op.startswith(FUSED) and "backward" in op]
    assert backward and PRODUCT not in found, found


def test_a_query_that_sees_nothing_gets_what_eager_gives_it(tmp_path: Path) -> None:
    q, seen = tensors(512)
    seen[:, :, 7] = False
    assert_close(compiled(tmp_path)(q, seen), layers(q, seen))


def test_a_batch_of_another_size_is_served_too(tmp_path: Path) -> None:
    q, seen = tensors(512)
    function = torch.compile(
        layers, backend="tcdebug", dynamic=True, options={"run_dir": str(tmp_path)}
    )
    for part in (q, q[:3], q[:2]):
        assert_close(function(part, seen), layers(part, seen))
    assert PRODUCT not in calls(tmp_path)
