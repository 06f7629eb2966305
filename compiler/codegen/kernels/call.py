"""How the wrapper calls a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, flat_expressions, flat_indices
from tcdebug.compiler.ir.expr import Load, Parameter
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.cost import bytes_of
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass(frozen=True)
class KernelCall:
    """What a kernel is given, in order: `before`, addresses, sizes, numbers, `after`."""

    kernel: Kernel
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    symbols: tuple[str, ...]
    parameters: tuple[str, ...]
    moved: int
    """An estimate of the bytes read and written."""
    into: Mapping[str, str]
    """What is stored -> the input whose memory it is."""
    source: str = ""
    shares: str = ""
    """The kernel whose code it runs, where that is the same."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    addresses: bool = True
    """Whether it is given addresses of memory, else tensors."""
    joins: bool = False
    """Whether one call can run it with others: see `Launch`."""
    mended: bool = False
    """Whether a launch that fails is handed on to `mend_<kernel>`, with what it was given."""

    @property
    def code(self) -> str:
        """The kernel in whose name its code is written."""
        return self.shares or self.kernel.name

    def storage(self) -> dict[str, str]:
        """What each buffer and number is called in the kernel."""
        names = {name: f"{name}_in" for name in self.loads}
        names |= {name: f"{name}_out" for name in self.stores}
        names |= {memory: names[name] for name, memory in self.into.items()}
        return names | {name: f"{name}_value" for name in self.parameters}


def describe(kernel: Kernel, flat: FlatKernel, buffers: Mapping[str, Buffer]) -> KernelCall:
    """What the code of a kernel has to be given, in an order that no name decides."""
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
