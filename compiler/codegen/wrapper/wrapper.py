"""Writes the schedule as a Python function that allocates, calls kernels and ATen, and frees."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.wrapper.launches import Launch, launch, together
from tcdebug.compiler.codegen.wrapper.lifetimes import ValueLifetimes, layout_of
from tcdebug.compiler.codegen.wrapper.python_bindings import DIRECT
from tcdebug.compiler.codegen.wrapper.python_text import (
    function_text,
    items_text,
    path_text,
    tuple_text,
)
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Index, Symbol
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Node,
    Ref,
    contiguous_strides,
    extern_refs,
)
from tcdebug.compiler.ir.printer import target_text
from tcdebug.compiler.schedule.kernel import Kernel, Schedule

aten = torch.ops.aten
SIZES = frozenset((aten.expand.default, aten.view.default))
"""Operators that also take sizes as separate arguments, which is 0.5 us faster than a list."""
FOR_THEIR_GRADIENT = frozenset((aten._embedding_bag.default,))
"""Operators whose further results only their gradient reads. The fake kernel of a bag of bfloat16
returns another size of one than the real kernel does."""
REUSE = "memory.reuse"


@dataclass(frozen=True)
class WrapperSource:
    """The source of a function `call(args)`, and the objects that its names refer to."""

    text: str
    names: Mapping[str, Any]
    device: torch.device | None = None
    """The GPU of all launches; None if there is none, or several."""
    streams: bool = False
    """Whether it launches kernels on streams of GPUs."""
    launches: tuple[Launch, ...] = ()
    """The launches of several kernels."""
    direct: str = ""
    """For inference, a `call` that takes its arguments one by one and disables gradients itself.

    Empty if the graph calls operators other than ATen's, which may need AOTAutograd's wrappers.
    """


class WrapperWriter:
    """Writes the wrapper of one schedule.

    Hooks on saved tensors may have made the inputs of a `backward` contiguous. Autograd inspects
    the results of a `forward`.
    """

    def __init__(
        self,
        schedule: Schedule,
        calls: Mapping[str, KernelCall],
        gate: Gate,
        *,
        direction: str = "inference",
    ) -> None:
        self.schedule = schedule
        self.direction = direction
        self.graph: Graph = schedule.graph
        self.calls = calls
        self.gate = gate
        self.buffers = self.graph.buffers()
        self.devices = {k.device.index for k in schedule.kernels() if k.device.type == "cuda"}
        alone = next(iter(self.devices)) if len(self.devices) == 1 else None
        self.device = None if alone is None else torch.device("cuda", alone)
        self.lines: list[str] = []
        self.names: dict[str, Any] = {f"constant_{n}": v for n, v in self.graph.constants.items()}
        self.lives = ValueLifetimes(schedule, calls, self.buffers)
        self.reshaped = {  # values stored over memory of other dimensions
            name
            for name, memory in self.lives.memory.items()
            if layout_of(self.buffers[name]) != layout_of(self.buffers[memory])
        }
        self.free: list[str] = []  # dead buffers whose memory may be used again
        self.owned: set[str] = set()  # buffers that only kernels have ever seen
        self.views = {n.name for n in self.graph.nodes if _is_alias(n)}
        self.read_by_kernels = {n for c in calls.values() for n in (*c.loads, *c.into.values())}
        results = self.graph.outputs if direction == "forward" else ()
        self.saved = {o.name for o in results if isinstance(o, Ref)} - self.read_by_kernels
        self.saved -= _for_gradients(self.graph)
        self.launches: list[Launch] = []
        self.late: list[str] | None = None  # deletions after the current launch, None outside one

    def write(self) -> WrapperSource:
        """Return the source of the wrapper."""
        names = [spec.name for spec in self.graph.inputs]
        taken = [f"{items_text(names)} = args"] if names else []
        self._arguments()
        for steps in together(self.schedule, self.calls, self.lives.last_use, self.buffers):
            self._steps(steps)
        returned = [self._returned(o) for o in self.graph.outputs]
        self.lines.append(f"return ({items_text(returned)})")
        return WrapperSource(
            function_text("args", [*taken, "args.clear()", *self.lines]),
            self.names,
            self.device,
            bool(self.devices),
            tuple(self.launches),
            self._direct(names),
        )

    def _direct(self, names: Sequence[str]) -> str:
        """Return the text of `WrapperSource.direct`. Call it after all lines are written."""
        externs = [step.target for step in self.schedule.steps if isinstance(step, Extern)]
        if self.direction != "inference" or not all(map(_is_plain, externs)):
            return ""
        lines = self.lines
        if externs or any(call.parameters for call in self.calls.values()):  # torch is used
            off, on = (f"    set_grad_enabled({value})" for value in (False, True))
            lines = [f"    {line}" for line in lines]
            lines = ["if grad_enabled := is_grad_enabled():", off, "try:", *lines]
            lines += ["finally:", "    if grad_enabled:", f"    {on}"]
        return function_text(", ".join(names), lines)

    # -- lifetimes --------------------------------------------------------------------------

    def _release(self, position: int) -> None:
        gone: list[str] = []
        for name in self.lives.ending_at(position):
            if name in self.owned and self.lives.keeps_memory(self.buffers[name], position):
                self.free.append(name)
            elif name not in self.graph.constants:
                gone.append(name)
        self._delete(*gone)

    def _delete(self, *names: str) -> None:
        if names:
            lines = self.lines if self.late is None else self.late
            lines.append(f"del {', '.join(names)}")

    # -- steps ------------------------------------------------------------------------------

    def _arguments(self) -> None:
        known: set[Symbol] = set()
        for spec in self.graph.inputs:
            if spec.symbol is not None and spec.symbol not in known:
                known.add(spec.symbol)
                self.lines.append(f"{spec.symbol.name} = {spec.name}")
        for spec in self.graph.inputs:
            if spec.buffer is not None:
                self._bind_sizes(spec.buffer, known)
        for spec in self.graph.inputs if self.direction == "backward" else ():
            if spec.buffer is not None and not _in_rows(spec.buffer):
                self._lay_out(spec.buffer)
        if any("threads" in call.after for call in self.calls.values()):
            self.lines.append("threads = get_num_threads()")
        for index in sorted(self.devices):
            self.lines.append(f"stream_{index} = current_stream({index})")

    def _bind_sizes(self, buffer: Buffer, known: set[Symbol]) -> None:
        """Read sizes that no argument gives from the shapes of tensors."""
        for method, indices in (("size", buffer.size), ("stride", buffer.stride)):
            for dim, index in enumerate(indices):
                atoms = index.direct_atoms
                if (
                    len(atoms) == 1
                    and isinstance(atoms[0], Symbol)
                    and index == Index({(atoms[0],): 1})
                ):
                    if atoms[0] in known:
                        continue
                    known.add(atoms[0])
                    self.lines.append(f"{atoms[0].name} = {buffer.name}.{method}({dim})")

    def _steps(self, positions: range) -> None:
        """Write some steps. If they have several kernels, these are launched together."""
        steps = [self.schedule.steps[p] for p in positions]
        kernels = [s for s in steps if isinstance(s, Kernel)]
        if kernels and (combo := self.calls[kernels[0].name].combo) is not None:
            self._combo(kernels, combo, positions)
            return
        self.late = [] if len(kernels) > 1 else None
        for position, step in zip(positions, steps, strict=True):
            if isinstance(step, Extern):
                self._extern(step)
            else:
                self._memory(self.calls[step.name])
                if self.late is None:
                    self._kernel(step)
            self._release(position)
        if self.late is not None:
            self._launch(kernels)
            self.lines += self.late
            self.late = None

    def _combo(self, kernels: Sequence[Kernel], combo: KernelCall, positions: range) -> None:
        """Write the call of a combo kernel, whose kernels take no memory of each other."""
        for kernel in kernels:
            self._memory(self.calls[kernel.name])
        self._called(combo)
        for at in positions:
            self._release(at)

    def _memory(self, call: KernelCall) -> None:
        """Allocate memory for the values that a kernel stores."""
        for name in call.stores:
            memory = call.into.get(name)
            if memory is None:
                self._allocate(self.buffers[name])
            elif name in self.reshaped:
                self.lines.append(f"{name} = {self._reshaped(memory, self.buffers[name])}")
            else:
                self.lines.append(f"{name} = {memory}")  # the same memory

    def _reshaped(self, memory: str, buffer: Buffer) -> str:
        size = tuple_text(buffer.size)
        if buffer.is_row_major and self.buffers[memory].is_row_major:
            return f"reshaped({memory}, {size})"
        return f"restrided({memory}, {size}, {tuple_text(buffer.stride)})"

    def _launch(self, kernels: Sequence[Kernel]) -> None:
        """Write one call for several kernels."""
        name = f"launch_{len(self.launches)}"
        self.launches.append(made := launch(name, [self.calls[k.name] for k in kernels]))
        self.names[name] = None  # filled in when the kernels are built
        failed = ", ".join(repr(k.name) for k in kernels)
        self.lines += [
            f"if status := {name}({', '.join(made.given)}):",
            f"    raise_status(status, {failed})",
        ]

    def _kernel(self, kernel: Kernel) -> None:
        self._called(self.calls[kernel.name])

    def _called(self, call: KernelCall) -> None:
        """Write the call of a kernel that is launched by itself."""
        kernel, given = call.kernel, [*call.loads, *call.stores]
        self.names[f"run_{kernel.name}"] = None  # filled in when the kernels are built
        if call.addresses:
            given = [f"{name}.data_ptr()" for name in given]
        given += [*call.symbols, *(f"float({p})" for p in call.parameters)]
        arguments = ", ".join((*call.before, *given, *call.after))
        failed = f"raise_status(status, {kernel.name!r})"
        if call.mended:
            failed = f"mend_{kernel.name}(status, {arguments})"
        lines = [f"if status := run_{kernel.name}({arguments}):", f"    {failed}"]
        if kernel.device.type == "cuda" and self.device is None:
            lines = [f"with cuda_device({kernel.device.index}):", *(f"    {s}" for s in lines)]
        self.lines += lines

    def _allocate(self, buffer: Buffer) -> None:
        for name in [f for f in self.free if layout_of(self.buffers[f]) == layout_of(buffer)]:
            self.free.remove(name)
            if self.gate.allows(REUSE, f"{buffer.name}<-{name}"):
                self.lines.append(f"{buffer.name} = {name}")
                self._delete(name)
                break
            self._delete(name)
        else:
            size, stride = tuple_text(buffer.size), tuple_text(buffer.stride)
            dtype = self._dtype(buffer)
            if buffer.device == self.device:
                call = f"empty_strided_cuda({size}, {stride}, {dtype})"
            elif buffer.device.type == "cpu":
                call = f"empty_strided_cpu({size}, {stride}, {dtype})"
            else:
                device = self._object(buffer.device, str(buffer.device))
                call = f"empty_strided({size}, {stride}, dtype={dtype}, device={device})"
            self.lines.append(f"{buffer.name} = {call}")
        if buffer.name in self.lives.last_use:
            self.owned.add(buffer.name)

    def _dtype(self, buffer: Buffer) -> str:
        name = str(buffer.dtype).removeprefix("torch.")
        self.names[name] = buffer.dtype
        return name

    def _extern(self, node: Extern) -> None:
        self.lines.append(f"{node.name} = {self._call(node)}")
        for symbol, path in node.binds.items():
            self.lines.append(f"{symbol.name} = int({path_text(node.name, path)})")
        if node.out is not None:
            self._lay_out(node.out)
            if node.name in self.saved and (node.target is operator.getitem or not _is_alias(node)):
                self.lines.append(f"require_size({node.name}, {tuple_text(node.out.size)})")
        for name in (*extern_refs(node), node.alias_of or ""):
            self.owned.discard(self.lives.memory.get(name, name))  # its memory may be shared now

    def _lay_out(self, buffer: Buffer) -> None:
        """Ensure the strides of a tensor that kernels read and did not make themselves."""
        if (name := buffer.name) in self.read_by_kernels:
            size, stride = tuple_text(buffer.size), tuple_text(buffer.stride)
            layout = f"{self._dtype(buffer)}, {size}, {stride}"
            self.lines.append(f"{name} = laid_out({name}, {layout})")

    def _call(self, node: Extern) -> str:
        given = node.args
        if node.target in SIZES and given[1]:
            given = (given[0], *given[1])
        args = [self._value(a) for a in given]
        if node.target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        kwargs = [f"{k}={self._value(v)}" for k, v in node.kwargs.items()]
        own = node.target is seams.reinterpret_tensor
        text = "reinterpret_tensor" if own else target_text(node.target)
        target = self._object(DIRECT.get(node.target, node.target), text)
        return f"{target}({', '.join([*args, *kwargs])})"

    def _returned(self, output: Any) -> str:
        """Return a result. In a forward, a view is detached from its base.

        The base may be a result that needs a gradient. torch would then assume that the view needs
        one too. A result that took over memory is no view for the caller, who may update it.
        """
        detached = self.reshaped | (self.views if self.direction == "forward" else set())
        if isinstance(output, Ref) and output.name in detached:
            return f"{self._value(output)}.detach()"
        return self._value(output)

    def _value(self, value: Any) -> str:
        """Return an argument or output as Python."""
        match value:
            case Ref():
                if value.name in self.graph.constants:
                    return f"constant_{value.name}"
                return value.name
            case Index():
                return render(value)
            case None | bool() | int() | str():
                return repr(value)
            case tuple():  # not a list: higher-order operators distinguish the two
                inner = "".join(f"{self._value(v)}, " for v in value)
                return f"({inner.rstrip()})"
            case list():
                inner = ", ".join(self._value(v) for v in value)
                return f"[{inner}]"
            case dict():
                inner = ", ".join(f"{k!r}: {self._value(v)}" for k, v in value.items())
                return f"{{{inner}}}"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(self._value(p) for p in parts)})"
        return self._object(value, str(value))

    def _object(self, value: Any, text: str) -> str:
        """Return a name for an object that has no literal."""
        stem = "".join(c if c.isalnum() else "_" for c in text.removeprefix("torch.ops."))[:60]
        name = f"o_{stem}"
        while name in self.names and self.names[name] is not value:
            name += "_"
        self.names[name] = value
        return name


def _in_rows(buffer: Buffer) -> bool:
    """Return whether a buffer is known to be contiguous."""
    return buffer.stride == contiguous_strides(buffer.size)


def _is_plain(target: Any) -> bool:
    """Return whether a callable is an ATen operator, or makes a view of a tensor."""
    views = operator.getitem, seams.reinterpret_tensor
    return target in views or getattr(target, "namespace", "") == "aten"


def _is_alias(node: Node) -> bool:
    """Return whether a node is a tensor that shares the memory of another."""
    return isinstance(node, Extern) and node.alias_of is not None and node.out is not None


def _for_gradients(graph: Graph) -> set[str]:
    """Return the names of results of operators that only the operator's gradient reads."""
    externs = [n for n in graph.nodes if isinstance(n, Extern)]
    makers = {n.name for n in externs if n.target in FOR_THEIR_GRADIENT}
    parts = (n for n in externs if n.target is operator.getitem and n.args[1] != 0)
    return {n.name for n in parts if isinstance(n.args[0], Ref) and n.args[0].name in makers}
