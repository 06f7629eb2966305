"""Takes the default devices of a script out of force, where its process must not use a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._device import DeviceContext


@dataclass(frozen=True)
class DefaultDevices:
    """The default devices of a script, which are not in force until they are restored."""

    default: torch.device | None
    """The one that the script set with `torch.set_default_device`, if it was in force."""
    modes: Sequence[Any]
    """The modes that were in force, the innermost last: blocks like `with torch.device("cuda")`.

    The mode of the default device is None.
    """

    @classmethod
    def left(cls) -> DefaultDevices:
        """Leave all default devices, so that tensors of this process are on the CPU.

        Inside a call with which the script creates a tensor, none is in force. The default device
        is read without `torch.get_default_device`, which would initialise CUDA to number it.
        """
        context, modes = _default_context(), _replaced_modes([])
        _replaced_modes([m for m in modes if m is context or not isinstance(m, DeviceContext)])
        default = context.device if context is not None and context in modes else None
        if default:
            torch.set_default_device(None)
        return cls(default, [None if m is context else m for m in modes])

    def restore(self) -> None:
        """Put them in force again."""
        if self.default:
            torch.set_default_device(self.default)
        _replaced_modes([_default_context() if m is None else m for m in self.modes])


def _default_context() -> DeviceContext | None:
    context: DeviceContext | None = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context


def _replaced_modes(modes: Sequence[Any]) -> list[Any]:
    """Replace the modes that are in force, the innermost last; return what they were."""
    count = torch._C._len_torch_function_stack()
    before = [torch.overrides._pop_mode() for _ in range(count)]  # type: ignore[no-untyped-call] # not annotated
    for mode in modes:
        torch.overrides._push_mode(mode)  # type: ignore[no-untyped-call] # not annotated
    return before[::-1]
