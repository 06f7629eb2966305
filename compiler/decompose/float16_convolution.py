"""Computes convolutions of float16 on a CPU in float32, where oneDNN has none of float16.

ATen's own take 20 to 240 times as long as those of float32 (one thread of an AMD EPYC).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def _is_slow(x: Tensor) -> bool:
    half_on_cpu = x.device.type == "cpu" and x.dtype == torch.float16
    return half_on_cpu and not torch.ops.mkldnn._is_mkldnn_fp16_supported()


def _wide(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(torch.float32)


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Any:
    """Return the convolution, computed in float32, if it is slow in float16."""
    if not _is_slow(x):
        return NotImplemented
    wide = aten.convolution.default(_wide(x), _wide(weight), _wide(bias), *options)
    return wide.to(torch.float16)


def convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, sizes: Sequence[int] | None, *options: Any
) -> Any:
    """Return the gradients of the image, the weight and the bias, computed in float32."""
    if not _is_slow(x):
        return NotImplemented
    given = (_wide(gradient), _wide(x), _wide(weight))
    found = aten.convolution_backward.default(*given, sizes, *options)
    return tuple(None if t is None else t.to(torch.float16) for t in found)


FLOAT16_CONVOLUTION: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
