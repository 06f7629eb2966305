"""What writes and runs the kernels of each type of device."""

from __future__ import annotations

from tcdebug.compiler.devices.cpu import CppCodegen
from tcdebug.compiler.devices.cuda import TritonCodegen
from tcdebug.compiler.devices.protocol import Codegen

DEVICES: dict[str, Codegen] = {"cpu": CppCodegen(), "cuda": TritonCodegen()}
"""Type of device -> what writes its kernels. On any other, operators are left to ATen."""
