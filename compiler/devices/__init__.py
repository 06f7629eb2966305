"""The code generators of each type of device."""

from __future__ import annotations

from tcdebug.compiler.devices.cpu import CppCodegen
from tcdebug.compiler.devices.cuda import TritonCodegen
from tcdebug.compiler.devices.protocol import Codegen
from tcdebug.compiler.registry import REGISTRY, read_through

OWN: dict[str, Codegen] = {"cpu": CppCodegen(), "cuda": TritonCodegen()}

DEVICES = read_through(OWN, REGISTRY.devices)
"""Type of device -> the `Codegen` of its kernels. Operators on other devices are calls to ATen."""
