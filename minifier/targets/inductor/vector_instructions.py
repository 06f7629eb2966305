"""Determines the vector instructions that inductor uses, and remembers that they work.

torch builds a library for each set of instructions and loads it in a process of its own. It keeps
the libraries, but loads them again in every process, which takes about a CPU-second.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import torch
from torch._inductor import config, cpu_vec_isa
from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler
from torch._inductor.runtime.cache_dir_utils import cache_dir

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file that Linux changes with every start of a machine."""


def pick() -> None:
    """Let inductor determine the vector instructions of this process.

    It does not try them again if all worked since the machine was started, with this torch and this
    compiler.
    """
    known = all_known_to_work()
    with config.patch({"cpp.vec_isa_ok": True} if known else {}):
        cpu_vec_isa.pick_vec_isa()
    if not known and _all_work() and (record := _record()) is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()


def all_known_to_work() -> bool:
    """Return whether all vector instructions of the CPU were tried before, and worked."""
    record = _record()
    return record is not None and record.exists()


def _all_work() -> bool:
    """Return whether this process has found that all instructions of the CPU work."""
    claimed = cpu_vec_isa.x86_isa_checker()
    possible = [
        isa
        for isa in cpu_vec_isa.supported_vec_isa_list
        if all(flag in claimed for flag in str(isa).split())
    ]
    return bool(possible) and cpu_vec_isa.valid_vec_isa_list() == possible


def _record() -> Path | None:
    """Return the file that says that all work; None if torch tries none, or has no compiler."""
    if platform.machine() != "x86_64" or not BOOT.exists():
        return None
    try:
        compiler = get_compiler_version_info(get_cpp_compiler())
    except Exception:  # there is no compiler, or it does not run
        return None
    claimed = cpu_vec_isa.x86_isa_checker()
    facts = (torch.__version__, torch.version.git_version, compiler, claimed, BOOT.read_text())
    name = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return Path(cache_dir(), f"vector-instructions-{name}")
