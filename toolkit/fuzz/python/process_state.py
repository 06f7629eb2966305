"""Undoes what a program does to the process: flags of torch, variables, seeds and modules."""

from __future__ import annotations

import contextlib
import decimal
import os
import random
import sys
from collections.abc import Iterator

import torch
from torch._C import _functorch
from torch._dynamo.symbolic_convert import _import_module
from torch.autograd import forward_ad

from tcdebug.strategies.python.process_flags import PROCESS_FLAGS

MODULES = ("generated_program", "settings")
"""The modules that programs run as, or make."""
ALIAS = "__import_"
"""What the names of globals begin with by which Dynamo's code reaches other modules."""
_NAMES = {"torch": torch, "random": random, "decimal": decimal, "os": os}


@contextlib.contextmanager
def own_process_state() -> Iterator[None]:
    """Give the process back as it was."""
    found = [(put, eval(read, dict(_NAMES))) for read, put in PROCESS_FLAGS]
    torch.manual_seed(0)
    try:
        yield
    finally:
        _leave_transforms()
        torch.set_default_device(None)
        for put, value in found:
            eval(put, {**_NAMES, "value": value})
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
