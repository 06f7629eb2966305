"""What the compiler asks of whoever writes kernels for a type of device."""

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
    """Kernels as text, and how the wrapper calls each by name."""

    @property
    def text(self) -> str:
        """What is compiled."""

    @property
    def calls(self) -> Mapping[str, KernelCall]:
        """Kernel -> its call."""

    @property
    def language(self) -> str:
        """What it is written in, as events name it."""

    @property
    def suffix(self) -> str:
        """Of a file that holds it."""


class Codegen(Protocol):
    """Writes kernels for a type of device, and makes them callable."""

    def prepare(self, options: Options) -> None:
        """Begin, in a thread, what `build` will need of any kernel: a graph was captured."""

    def refuses(self, node: LoopNode) -> str:
        """Why a node cannot be written, which leaves its operator to ATen; empty where it can."""

    def write(
        self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
    ) -> KernelSource:
        """The source of kernels, which are those of one graph on this type of device."""

    def is_built(self, source: Any, options: Options) -> bool:
        """Whether `build` has next to nothing left to do."""

    def build(
        self, source: Any, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        """What the wrapper calls, by name: run_<kernel>(...) -> 0, or a status.

        It is given what `KernelCall` says. `launches` are the further calls, each of several
        kernels that say `joins`. Raises CompileError or what its compiler raises.
        """
