"""What writes and runs the kernels of each type of device."""

from __future__ import annotations

from tcdebug.compiler.targets.cpp import CppTarget
from tcdebug.compiler.targets.target import Target
from tcdebug.compiler.targets.triton import TritonTarget

TARGETS: dict[str, Target] = {"cpu": CppTarget(), "cuda": TritonTarget()}
"""Type of device -> its target. On any other device, operators are left to ATen."""
