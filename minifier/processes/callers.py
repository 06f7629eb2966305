"""Decides whether the user's program called torch.compile, or torch for its own purposes.

Outside compiled code, torch runs `cond`, `scan`, `map`, `associative_scan`, `while_loop` and
flex_attention by compiling them itself. Such a call is part of eager, and is left alone. Any other
library that calls torch.compile counts as the user's program.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from tcdebug.compiler import patching

ENTRANCES = (
    "__init__.py", "compiler/__init__.py", "nn/modules/module.py", "_dynamo/repro/",
    "_dynamo/testing.py", "_dynamo/test_case.py", "testing/", "_functorch/compilers.py",
    "_dynamo/compiled_autograd.py", "autograd/", "_tensor.py",
)  # fmt: skip
"""Files of torch that compile on behalf of their caller. The last three are those of a backward
pass that compiled autograd compiles."""

FORWARDS = patching.__file__
"""The file whose frames are between a replacement and its caller."""
REPLACEMENTS = ("optimize", "compile_leniently", "first_call")
"""The names of functions that replace `optimize` and `torch.compile`."""


def asked_by_torch(frame: FrameType | None) -> bool:
    """Return whether a function that is replaced was called by a function of torch itself."""
    while frame is not None and frame.f_code.co_filename == FORWARDS:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_torch_folder())


def called_by_user(frame: FrameType | None) -> bool:
    """Return whether the program called torch.compile, rather than torch for its own purposes.

    `frame` is the one that called `torch._dynamo.optimize`. The nearest caller decides, except for
    torch's entrances to torch.compile, its replacements, and the code that forwards to these.
    """
    torch_folder = _torch_folder()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(torch_folder):
            if not name[len(torch_folder) :].startswith(ENTRANCES):
                return False
        elif frame.f_code.co_name not in REPLACEMENTS and name != FORWARDS:
            return True
        frame = frame.f_back
    return True


def _torch_folder() -> str:
    return os.path.dirname(str(sys.modules["torch"].__file__)) + os.sep
