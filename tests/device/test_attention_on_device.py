"""Tests attention with a mask that hides nothing, on an NVIDIA GPU. Skipped without one.

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
"""The operator of attention that is decomposed because no kernel accepts its mask."""


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path / "cache"))


def attention(q: torch.Tensor) -> torch.Tensor:
    """Attention with the mask that BERT of transformers makes for a text without padding."""
    length = q.shape[2]
    queries = torch.arange(length, device=q.device)[None, None, :, None]
    mask = (queries >= 0).expand(q.shape[0], -1, length, length)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def layers(q: torch.Tensor) -> torch.Tensor:
    """Call attention twice and concatenate the heads."""
    return attention(attention(q) + q).transpose(1, 2).flatten(2)


def calls(folder: Path) -> Counter[str]:
    """Return the number of calls of each operator, over all graphs of a run."""
    texts = [path.read_text() for path in folder.glob("events*.jsonl")]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    return Counter(event["data"]["op"] for event in events if event["event"] == "extern")


def fused(folder: Path) -> int:
    return sum(n for op, n in calls(folder).items() if op.startswith(FUSED))


def compiled(function: Callable[..., Any], folder: Path, **options: Any) -> Callable[..., Any]:
    dynamic = options.pop("dynamic", None)
    options["run_dir"] = str(folder)
    return torch.compile(function, backend="tcdebug", dynamic=dynamic, options=options)


def heads(length: int, batch: int = 4) -> torch.Tensor:
    return torch.randn(batch, length, 6, 64, device="cuda").bfloat16().transpose(1, 2)


def assert_close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    assert mine.stride() == theirs.stride()
    torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize("length", [512, 77])
def test_the_result_equals_eager_and_comes_from_a_fused_kernel(tmp_path: Path, length: int) -> None:
    q = heads(length)
    assert_close(compiled(layers, tmp_path)(q), layers(q))
    assert fused(tmp_path) == 2, calls(tmp_path)
    assert PRODUCT not in calls(tmp_path)


def test_a_returned_result_has_the_strides_of_eager(tmp_path: Path) -> None:
    q = heads(512)
    assert_close(compiled(attention, tmp_path)(q), attention(q))
    assert fused(tmp_path) == 1, calls(tmp_path)


def test_gradients_equal_eager_and_are_fused_too(tmp_path: Path) -> None:
    mine, theirs = heads(512).requires_grad_(), heads(512).requires_grad_()
    theirs.data.copy_(mine.data)
    compiled(layers, tmp_path)(mine).float().square().mean().backward()
    layers(theirs).float().square().mean().backward()
    assert mine.grad is not None and theirs.grad is not None
    scale = theirs.grad.abs().max()
    torch.testing.assert_close(mine.grad / scale, theirs.grad / scale, rtol=2e-2, atol=2e-2)
    found = calls(tmp_path)
    assert any(op.startswith(FUSED) and "backward" in op for op in found), found
    assert PRODUCT not in found


def test_a_query_that_holds_nan_or_infinity_is_nan_as_in_eager(tmp_path: Path) -> None:
    q = heads(512)
    q[0, 1, 7, 3], q[1, 2, 9, 5] = float("nan"), float("inf")
    mine, theirs = compiled(attention, tmp_path)(q), attention(q)
    assert torch.equal(mine.isnan(), theirs.isnan())


def test_other_sizes_are_served_too(tmp_path: Path) -> None:
    function = compiled(layers, tmp_path, dynamic=True)
    for q in (heads(512), heads(256, 3), heads(300, 2)):
        assert_close(function(q), layers(q))
    assert fused(tmp_path) >= 2, calls(tmp_path)
    assert PRODUCT not in calls(tmp_path)
