"""Kernels that differ in names alone are written once: equal layers run the same code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.gate.gate import Gate

STATES = (
    "best", "carry", "kept", "nan", "part", "place", "result", "running", "scratch",
    "slots_best", "slots_nan", "slots_place", "slots_total", "sum", "total",
)  # fmt: skip
"""How the names in a kernel begin that end in that of a node."""
NAME = re.compile(r"[A-Za-z_]\w*")


def shared(
    calls: Mapping[str, KernelCall], gate: Gate, key: Callable[[KernelCall], str]
) -> dict[str, KernelCall]:
    """The calls; those whose code an earlier one has too run that, and have none of their own.

    Code is the same where its key is.
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
    """The text of a kernel with its own names numbered in their order, and without comments.

    `comment` is how a line begins that is one.
    """
    nodes = [node.name for node in call.kernel.nodes]
    own = {
        call.kernel.name,
        f"{call.kernel.name}_packed",
        *call.storage().values(),
        *(f"{state}_{node}" for state in STATES for node in nodes),
    }
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[0]
        return numbers.setdefault(name, f"@{len(numbers)}") if name in own else name

    lines = (line for line in call.source.splitlines() if not line.lstrip().startswith(comment))
    return NAME.sub(numbered, "\n".join(lines))
