"""Reads what inductor's loaded Triton kernels use of the GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tcdebug.compiler.events.schema import KernelLoaded

WORD = 4
"""Triton counts spilled registers, which have this many bytes."""


def loaded_kernels() -> Iterator[KernelLoaded]:
    """Yield the kernels of all graphs that this process has loaded, as they were launched last.

    A kernel whose figures torch does not keep is left out.
    """
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache is None:
        return
    for module in list(codecache.PyCodeCache.modules):
        for name, value in list(vars(module).items()):
            launchers = getattr(value, "launchers", None)
            if launchers and (event := _loaded(name, launchers[0])) is not None:
                yield event


def _loaded(name: str, launcher: Any) -> KernelLoaded | None:
    config = getattr(launcher, "config", None)
    registers = getattr(launcher, "n_regs", None)
    if config is None or registers is None:
        return None
    sizes = getattr(config, "kwargs", {})
    blocks = {k.removesuffix("BLOCK").lower(): v for k, v in sizes.items() if k.endswith("BLOCK")}
    spilled = WORD * int(getattr(launcher, "n_spills", None) or 0)
    shared = int(getattr(launcher, "shared", None) or 0)
    return KernelLoaded(name, blocks, config.num_warps, int(registers), spilled, shared)
