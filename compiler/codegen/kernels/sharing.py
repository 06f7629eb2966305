"""Writes kernels that differ only in names once, so that equal layers run the same code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.gate.gate import Gate

STATES = (
    "best", "carry", "kept", "nan", "part", "place", "result", "row", "rows_of", "running",
    "scratch", "slots_best", "slots_nan", "slots_place", "slots_total", "sum", "total",
)  # fmt: skip
"""Prefixes of generated names that end with the name of a node."""
NAME = re.compile(r"[A-Za-z_]\w*")
POINT = re.compile(r"_(at\d+|pair)$")
"""What is appended to the name of a node for one of its points, or for two as one integer."""


def shared(
    calls: Mapping[str, KernelCall], gate: Gate, key: Callable[[KernelCall], str]
) -> dict[str, KernelCall]:
    """The calls, with the source removed from those that can run the code of an earlier kernel.

    Two kernels have the same code if their keys are equal.
    """
    first: dict[str, str] = {}
    found: dict[str, KernelCall] = {}
    for name, call in calls.items():
        code = first.setdefault(key(call), name)
        if code != name and gate.allows("codegen.share", call.kernel.subject):
            call = replace(call, source="", shares=code)
        found[name] = call
    return found


def numbered_text(call: KernelCall, comment: str) -> str:
    """Return the source of a kernel with its own names replaced by numbers, and without comments.

    `comment` is the prefix of a comment line.
    """
    nodes = [node.name for node in call.kernel.nodes]
    own = {
        call.kernel.name,
        f"{call.kernel.name}_packed",
        f"{call.kernel.name}_part",
        *call.storage().values(),
        *(f"{state}_{node}" for state in STATES for node in nodes),
    }
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[0]
        is_own = POINT.sub("", name) in own
        return numbers.setdefault(name, f"@{len(numbers)}") if is_own else name

    lines = (line for line in call.source.splitlines() if not line.lstrip().startswith(comment))
    return NAME.sub(numbered, "\n".join(lines))
