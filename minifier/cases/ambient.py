"""What surrounds a graph when it is called and changes what it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tcdebug.minifier.cases.settings import assignments


@dataclass(frozen=True)
class Ambient:
    """Global state of torch; the defaults are torch's own."""

    grad: bool = True
    inference: bool = False
    autocast: str = ""
    """The dtype of CPU autocast, empty where it is off."""
    default_dtype: str = "torch.float32"
    deterministic: bool = False
    settings: tuple[str, ...] = ()
    """Lines of Python that set what the script or its environment has changed in torch's config."""

    @classmethod
    def current(cls, settings: tuple[str, ...] | None = None) -> Ambient:
        """The state here and now; with `settings`, those are taken for known."""
        autocast = ""
        if torch.is_autocast_enabled("cpu"):
            autocast = str(torch.get_autocast_dtype("cpu"))
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            autocast,
            str(torch.get_default_dtype()),
            torch.are_deterministic_algorithms_enabled(),
            assignments() if settings is None else settings,
        )

    def text(self) -> str:
        """Python that brings the state about, empty where it is torch's own."""
        lines = [*self.settings]
        if not self.grad:
            lines.append("torch.set_grad_enabled(False)")
        if self.inference:
            lines.append("torch.inference_mode().__enter__()")
        if self.autocast:
            lines.append(f'torch.autocast("cpu", dtype={self.autocast}).__enter__()')
        if self.default_dtype != "torch.float32":
            lines.append(f"torch.set_default_dtype({self.default_dtype})")
        if self.deterministic:
            lines.append("torch.use_deterministic_algorithms(True)")
        return "\n".join(lines)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Leave torch as it was, whatever a graph that stops in the middle has switched on."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    dual = _in_dual_level()
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
            if not dual and _in_dual_level():
                torch._C._exit_dual_level(level=0)
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_dtype("cpu", dtype)


def _in_dual_level() -> bool:
    """Whether forward-mode differentiation is on; torch has one level of it."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False
