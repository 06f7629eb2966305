"""Finds out which graph AOTAutograd is compiling."""

from __future__ import annotations

from torch._functorch._aot_autograd.logging_utils import get_aot_compilation_context


def compile_direction() -> str:
    """Return joint, forward, backward or inference; empty while AOTAutograd compiles nothing."""
    graphs, _, _ = get_aot_compilation_context()
    return graphs[0].rpartition("_")[2] if graphs else ""  # 0_forward
