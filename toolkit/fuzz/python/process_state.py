"""Undoes what a program does to the process: flags of torch, variables, seeds and modules."""

from __future__ import annotations

import contextlib
import decimal
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import _functorch
from torch._dynamo.symbolic_convert import _import_module
from torch.autograd import forward_ad
from torch.utils.hooks import RemovableHandle

MODULES = ("generated_program", "settings")
"""The modules that programs run as, or make."""
ALIAS = "__import_"
"""What the names of globals begin with by which Dynamo's code reaches other modules."""
Flag = tuple[Callable[[], Any], Callable[[Any], Any]]
FLAGS: tuple[Flag, ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda value: torch.set_autocast_dtype("cpu", value),
    ),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    (random.getstate, random.setstate),
    (lambda: decimal.getcontext().copy(), decimal.setcontext),
)
"""Reads and writes what a program may change."""
ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (torch.backends.mkldnn, "enabled"),
    (torch.backends.cudnn, "benchmark"),
    (RemovableHandle, "next_id"),  # the keys of dictionaries of hooks
)
"""Attributes that a program may change, with their owners."""


@contextlib.contextmanager
def own_process_state() -> Iterator[None]:
    """Give the process back as it was."""
    found = [(put, read()) for read, put in FLAGS]
    attributes = [(owner, name, getattr(owner, name)) for owner, name in ATTRIBUTES]
    variables = dict(os.environ)
    torch.manual_seed(0)
    try:
        yield
    finally:
        _leave_transforms()
        torch.set_default_device(None)
        for put, value in found:
            put(value)
        for owner, name, value in attributes:
            setattr(owner, name, value)
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        for name in MODULES:
            sys.modules.pop(name, None)
        _forget_aliases()


def _leave_transforms() -> None:
    """Leave the transforms of torch.func that a program has entered and not left.

    The graph of an exported program enters them by calls. If it raises, nothing leaves them, and
    Dynamo compiles nothing inside of transforms of eager.
    """
    while _functorch.peek_interpreter_stack() is not None:
        _functorch.pop_dynamic_layer_stack()
    with contextlib.suppress(RuntimeError):  # there is no level of forward mode to leave
        torch._C._exit_dual_level(level=0)
    forward_ad._current_level = -1


def _forget_aliases() -> None:
    """Remove the globals by which code of torch that Dynamo has compiled reaches a module.

    Dynamo keeps those that are there, and the modules that it has imported by name. The next
    program would find the module of this one.
    """
    _import_module.cache_clear()
    aliases = [f"{ALIAS}{name}" for name in MODULES]
    for module in list(sys.modules.values()):
        for alias in aliases:
            if alias in getattr(module, "__dict__", ()):
                delattr(module, alias)
