"""The protocol of a code generator for a type of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Buffer, LoopNode
from tcdebug.compiler.schedule.kernel import Kernel
from tcdebug.compiler.stages.stage import Stages


class KernelSource(Protocol):
    """The source of some kernels, and how the wrapper calls each of them."""

    @property
    def text(self) -> str:
        """The source that is compiled."""

    @property
    def calls(self) -> Mapping[str, KernelCall]:
        """Name of a kernel -> its call."""

    @property
    def language(self) -> str:
        """The language of the source, as events name it."""

    @property
    def suffix(self) -> str:
        """The suffix of a source file."""


class Codegen(Protocol):
    """Writes kernels for a type of device, and makes them callable."""

    def prepare(self, options: Options) -> None:
        """Start in a thread whatever `build` needs for every kernel. Called for each new graph."""

    def refuses(self, node: LoopNode) -> str:
        """Why a node cannot be written, so that its operator is a call to ATen; empty if it can."""

    def write(
        self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
    ) -> KernelSource:
        """Return the source of the kernels of one graph on this type of device."""

    def is_built(self, source: Any, options: Options) -> bool:
        """Return whether `build` would take almost no time."""

    def build(
        self, source: Any, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        """The functions that the wrapper calls, by name: run_<kernel>(...) -> 0 or an error status.

        `KernelCall` describes the arguments. `launches` are further functions to build; each runs
        several kernels whose call sets `joins`. Raises CompileError or an error of its compiler.
        """
