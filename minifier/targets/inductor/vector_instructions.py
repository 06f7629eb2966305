"""Determines the vector instructions that inductor uses, and remembers that they work.

torch builds a library for each set of instructions and loads it in a process of its own. It keeps
the libraries, but loads them again in every process, which takes about a CPU-second.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config, cpu_vec_isa
from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched

PATCHES = (
    Patch(
        "torch._inductor.cpu_vec_isa:VecISA",
        "check_build",
        "vector instructions are tried again in every process",
        takes=("code",),
    ),
)
(TRY,) = PATCHES
SETTING = "cpp.vec_isa_ok"
"""The setting of torch that says whether they work, so that torch does not try them."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file that Linux changes with every start of a machine."""


def pick() -> None:
    """Let inductor determine the vector instructions of this process.

    It does not try them again if all worked since the machine was started, with this torch and this
    compiler.
    """
    known, worked = all_known_to_work(), list[bool]()

    def remembering(original: Callable[..., bool]) -> Callable[..., bool]:
        def check_build(self: Any, code: str) -> bool:
            worked.append(known or original(self, code))
            return worked[-1]

        return check_build

    with patched(TRY, remembering, EventLog(None)):
        cpu_vec_isa.pick_vec_isa()
    record = _record()
    if record is not None and worked and all(worked) and config.cpp.vec_isa_ok is None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()


def pick_if_known() -> None:
    """Do so only if that takes no time. Else torch does it, if a kernel is compiled."""
    if not cpu_vec_isa.valid_vec_isa_list.cache_info().currsize and all_known_to_work():
        pick()


def all_known_to_work() -> bool:
    """Return whether all vector instructions of the CPU were tried before, and worked."""
    record = _record()
    return record is not None and record.exists()


def _record() -> Path | None:
    """Return the file that says that all work; None if torch tries none, or has no compiler."""
    if platform.machine() != "x86_64" or not BOOT.exists():
        return None
    try:
        compiler = get_compiler_version_info(get_cpp_compiler())
    except Exception:  # there is no compiler, or it does not run
        return None
    facts = (torch.__version__, torch.version.git_version, compiler, BOOT.read_text())
    name = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return Options.from_env().cache_dir / f"vector-instructions-{name}"
