"""Decides whether the user's program called torch.compile, or torch for its own purposes.

Outside compiled code, torch runs `cond`, `scan`, `map`, `associative_scan`, `while_loop` and
flex_attention by compiling them itself. Such a call is part of eager, and is left alone. Any other
library that calls torch.compile counts as the user's program.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from tcdebug.compiler import patching
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CompilingMentioned

ENTRANCES = (
    "__init__.py", "compiler/__init__.py", "nn/modules/module.py", "_dynamo/repro/",
    "_dynamo/testing.py", "_dynamo/test_case.py", "testing/", "_functorch/compilers.py",
    "_dynamo/compiled_autograd.py", "autograd/", "_tensor.py",
)  # fmt: skip
"""Files of torch that compile on behalf of their caller. The last three are those of a backward
pass that compiled autograd compiles."""

FORWARDS = patching.__file__
"""The file whose frames are between a replacement and its caller."""
ASKS = re.compile(r"\bis_(?:dynamo_|torchdynamo_)?compiling\b")
"""The names of the functions with which a program asks whether it is being compiled."""
OPERATORS = os.path.join("_higher_order_ops", "")
"""torch's folder of the operators that compile what they are given."""
NEAR = 6
"""torch's frames between such an operator and `torch._dynamo.optimize`, at most."""
REPLACEMENTS = ("optimize", "compile_leniently", "first_call")
"""The names of functions that replace `optimize` and `torch.compile`."""


def asked_by(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called a function that is replaced; None if it is torch's own."""
    while frame is not None and frame.f_code.co_filename == FORWARDS:
        frame = frame.f_back
    own = frame is not None and frame.f_code.co_filename.startswith(_torch_folder())
    return None if own else frame


def shown(frame: FrameType) -> str:
    """Return the place of a frame and its line, as a report shows them."""
    code, number = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, number).strip()
    return f"{code.co_filename}:{number} in {code.co_name}: {text}"


@contextlib.contextmanager
def mentions_noted(log: EventLog) -> Iterator[None]:
    """Emit an event if a module that the block imports, outside torch, mentions `is_compiling`.

    One event is enough: a run shows whether it matters.
    """
    before = set(sys.modules)
    try:
        yield
    finally:
        _note_mention([module for name, module in sys.modules.items() if name not in before], log)


def _note_mention(modules: Iterable[object], log: EventLog) -> None:
    """Emit an event for the first of these modules, outside torch, that mentions it."""
    tools = (_torch_folder(), str(Path(__file__).parents[2]) + os.sep)
    for module in modules:
        path = getattr(module, "__file__", None) or ""
        if path.startswith(tools) or not path.endswith(".py"):
            continue
        with contextlib.suppress(OSError):
            if ASKS.search(Path(path).read_text(errors="replace")):
                log.emit(CompilingMentioned(path))
                return


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


def operator_around(frame: FrameType | None) -> str:
    """Return the operator of torch, such as cond, that compiles what it is given; "" if none does.

    `frame` is the one that called `torch._dynamo.optimize`.
    """
    torch_folder, left = _torch_folder(), NEAR
    while frame is not None and left:
        name = frame.f_code.co_filename
        if name.startswith(torch_folder):
            if name[len(torch_folder) :].startswith(OPERATORS):
                return Path(name).stem
            left -= 1
        frame = frame.f_back
    return ""


def _torch_folder() -> str:
    return os.path.dirname(str(sys.modules["torch"].__file__)) + os.sep
