"""The global torch state that is in force when a graph is called and that affects its results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tcdebug.minifier.cases.settings import assignments

DEVICES = ("cpu", "cuda")
"""The devices whose autocast state is recorded."""


@dataclass(frozen=True)
class Ambient:
    """Global torch state. The default values are torch's own."""

    grad: bool = True
    inference: bool = False
    autocast: str = ""
    """The dtype of CPU autocast; empty if it is off."""
    autocast_cuda: str = ""
    """The dtype of CUDA autocast; empty if it is off."""
    default_dtype: str = "torch.float32"
    matmul_precision: str = "highest"
    """The precision of float32 matrix products, as torch.set_float32_matmul_precision takes it."""
    deterministic: bool = False
    settings: tuple[str, ...] = ()
    """Lines of Python that restore the torch settings changed by the script or its environment."""

    @classmethod
    def current(cls, settings: tuple[str, ...] | None = None) -> Ambient:
        """Return the current state. If `settings` are given, they are not searched for."""
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            _autocast("cpu"),
            _autocast("cuda"),
            str(torch.get_default_dtype()),
            str(torch.get_float32_matmul_precision()),
            torch.are_deterministic_algorithms_enabled(),
            assignments() if settings is None else settings,
        )

    def text(self) -> str:
        """Return Python that sets this state; empty if the state is torch's default."""
        lines = [*self.settings]
        if not self.grad:
            lines.append("torch.set_grad_enabled(False)")
        if self.inference:
            lines.append("torch.inference_mode().__enter__()")
        for device, dtype in zip(DEVICES, (self.autocast, self.autocast_cuda), strict=True):
            if dtype:
                lines.append(f'torch.autocast("{device}", dtype={dtype}).__enter__()')
        if self.default_dtype != "torch.float32":
            lines.append(f"torch.set_default_dtype({self.default_dtype})")
        if self.matmul_precision != "highest":
            lines.append(f"torch.set_float32_matmul_precision({self.matmul_precision!r})")
        if self.deterministic:
            lines.append("torch.use_deterministic_algorithms(True)")
        return "\n".join(lines)

    def enter(self, stack: contextlib.ExitStack) -> None:
        """Set this state until `stack` is closed."""
        exec("\n".join(["import torch", *self.settings]), {})
        stack.enter_context(torch.inference_mode(self.inference))
        stack.enter_context(torch.set_grad_enabled(self.grad))
        for device, dtype in zip(DEVICES, (self.autocast, self.autocast_cuda), strict=True):
            wanted = getattr(torch, dtype.removeprefix("torch.")) if dtype else None
            stack.enter_context(torch.autocast(device, dtype=wanted, enabled=bool(dtype)))
        torch.set_default_dtype(getattr(torch, self.default_dtype.removeprefix("torch.")))
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic)


def _autocast(device: str) -> str:
    """Return the dtype of autocast on a device; empty if it is off."""
    return str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else ""


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the state of torch when the block ends, even if a graph stopped halfway."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    dual = _in_dual_level()
    hooks = torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]
    autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES]
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
            if not dual and _in_dual_level():
                torch._C._exit_dual_level(level=0)
            if hooks:
                torch._C._autograd._saved_tensors_hooks_enable()
            for device, enabled, dtype in autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)


def _in_dual_level() -> bool:
    """Return whether forward-mode differentiation is on. torch has a single level of it."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False
