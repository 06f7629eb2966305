"""The Triton kernels of programs for a GPU, written on a machine without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.devices.cuda import TritonCodegen
from tcdebug.compiler.registry import REGISTRY
from tcdebug.compiler.stages.stage import Stages


class Written(Exception):
    """Always true: nothing is built."""


class Recording(TritonCodegen):
    """Keeps the source and stops the compile."""

    source: TritonSource | None = None

    def build(
        self, source: TritonSource, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        self.source = source
        raise Written


def cuda(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor without memory, for use in `triton_of`."""
    return torch.empty(*size, dtype=dtype, device="cuda")


def triton_of(
    program: Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]],
    device: str = "cuda",
    **options: Any,
) -> TritonSource:
    """The kernels of a function of fake tensors. `program` makes the function and its inputs.

    A torch without CUDA does not trace updates of inputs on a GPU. With "cpu" as the `device`, the
    kernels of tensors on a CPU are written as for a GPU.
    """
    recording = Recording()
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(), torch.no_grad():
        patch.setitem(REGISTRY.devices, device, recording)
        function, inputs = program()
        try:
            torch.compile(function, backend="tcdebug", options=options)(*inputs)
        except Exception:
            if recording.source is None:
                raise
    assert recording.source is not None
    return recording.source
