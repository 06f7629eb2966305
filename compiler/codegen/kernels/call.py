"""Describes how the wrapper calls a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, flat_expressions, flat_indices
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.expr import Load, Parameter
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass(frozen=True)
class KernelCall:
    """The arguments of a kernel, in order: `before`, memory, sizes, numbers, `after`.

    `loads` and `stores` name the buffers it reads and writes, `symbols` the sizes, `parameters` the
    numbers.
    """

    kernel: Kernel
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    symbols: tuple[str, ...]
    parameters: tuple[str, ...]
    moved: int
    """The estimated number of bytes read and written."""
    into: Mapping[str, str]
    """Stored value -> the value whose memory it overwrites."""
    source: str = ""
    shares: str = ""
    """The kernel whose code it runs, if another one has the same code."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    addresses: bool = True
    """Whether it takes the addresses of tensors; otherwise it takes tensors."""
    joins: bool = False
    """Whether one call can run it together with others; see `Launch`."""
    combo: KernelCall | None = None
    """The call of the combo kernel that runs it, if there is one."""
    mended: bool = False
    """Whether a failed launch is passed to `mend_<kernel>`, with the same arguments."""
    points: Mapping[str, str] = field(default_factory=dict)
    """A point of an unrolled node -> that node, whose memory it is stored in."""

    @property
    def code(self) -> str:
        """The name of the kernel that contains its code."""
        return self.shares or self.kernel.name

    def storage(self) -> dict[str, str]:
        """Buffer or number -> its name in the code of the kernel."""
        names = {name: f"{name}_in" for name in self.loads}
        names |= {name: f"{name}_out" for name in self.stores}
        names |= {memory: names[name] for name, memory in self.into.items()}
        names |= {point: names[name] for point, name in self.points.items() if name in names}
        return names | {name: f"{name}_value" for name in self.parameters}


def describe(kernel: Kernel, flat: FlatKernel, buffers: Mapping[str, Buffer]) -> KernelCall:
    """Return the arguments of a kernel, in an order that does not depend on names."""
    loaded = kernel.loaded()
    read = [e for e in flat_expressions(flat) if isinstance(e, Load | Parameter)]
    parameters = tuple(dict.fromkeys(e.name for e in read if isinstance(e, Parameter)))
    into = {n.name: n.into for n in flat.nodes if n.into}
    inputs = loaded - set(into.values())
    loads = tuple(
        dict.fromkeys(e.buffer for e in read if isinstance(e, Load) and e.buffer in inputs)
    )
    stores = tuple(n.name for n in kernel.nodes if n.name in kernel.stored)
    symbols = tuple(
        sorted(
            {s.name for i in flat_indices(flat) for s in i.symbols}
            | {s.name for a in (*kernel.outer, *kernel.inner) for s in a.size.symbols}
        )
    )
    updated = loaded & set(into.values())
    moved = sum(bytes_of(buffers[name]) for name in (*loads, *updated, *stores))
    return KernelCall(kernel, loads, stores, symbols, parameters, moved, into)
