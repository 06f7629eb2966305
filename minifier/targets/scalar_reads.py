"""Whether a capture may read numbers from tensors, which later steps of a compile ask again.

With `fullgraph=True` Dynamo records `x.item()` in a graph, and otherwise breaks the graph there. It
keeps this in the graph's shape environment. A pass of inductor that reads a number, as the one that
lowers `scan` to a loop, raises if the capture must not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._guards import TracingContext


def captured_with_fullgraph() -> bool | None:
    """Return whether the capture that now calls its backend has `fullgraph=True`.

    Return None outside of a capture, and if all captures may read numbers.
    """
    shapes = _shape_environment()
    if shapes is None or torch._dynamo.config.capture_scalar_outputs:
        return None
    return bool(shapes.allow_scalar_outputs)


def forbid_scalar_reads() -> None:
    """Let the rest of the current compile read numbers only as without `fullgraph=True`."""
    shapes = _shape_environment()
    if shapes is not None:
        allowed = torch._dynamo.config.capture_scalar_outputs
        shapes.settings = replace(shapes.settings, allow_scalar_outputs=allowed)


def _shape_environment() -> Any:
    context = TracingContext.try_get()
    return context.fake_mode.shape_env if context is not None and context.fake_mode else None
