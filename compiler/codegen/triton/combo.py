"""Writes a combo kernel: one Triton function whose programs run several independent kernels.

Each kernel is a function that takes the number of the program. The combo kernel finds the kernel of
a program by comparing its number with bounds. Kernels with the same code and as many programs, as
for tensors of equal sizes, share one call, whose arguments are chosen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.triton.tiles import Tile, TileDimension
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.kernel import Kernel

Lines = Iterator[str]


@dataclass(frozen=True)
class _SameCode:
    """Kernels with the same code and as many programs. `given` has the arguments of each.

    Code that needs no mask is the same for all sizes that are multiples of its tile.
    """

    code: str
    constants: Mapping[str, int]
    each: int
    """The programs of one kernel."""
    given: tuple[tuple[str, ...], ...]

    @property
    def programs(self) -> int:
        """The programs of all kernels."""
        return self.each * len(self.given)


def combined(name: str, kernels: Sequence[TritonKernel]) -> TritonKernel:
    """Return the combo kernel of some kernels, which were written as parts."""
    buffers = {b.name: b for k in kernels for b in k.memory}
    types: dict[str, str] = {}
    argument_of: dict[str, str] = {}
    for kernel in kernels:
        call = kernel.call
        values = (*call.loads, *call.stores, *call.parameters)
        for value, of_type in zip(values, kernel.signature.values(), strict=True):
            if value not in argument_of:
                argument_of[value] = f"given_{len(argument_of)}"
                types[value] = of_type
    memory = [v for v in argument_of if types[v].startswith("*")]
    numbers = [v for v in argument_of if not types[v].startswith("*")]
    parts = list(_parts(kernels, argument_of))
    total = sum(part.programs for part in parts)
    signature = {argument_of[v]: types[v] for v in (*memory, *numbers)}
    whole = Kernel(
        name,
        (),
        (),
        tuple(n for k in kernels for n in k.call.kernel.nodes),
        frozenset(n for k in kernels for n in k.call.kernel.stored),
    )
    wide = "1" if any(k.call.before[1] == "1" for k in kernels) else "0"
    call = KernelCall(
        whole, tuple(memory), (), (), tuple(numbers), sum(k.call.moved for k in kernels), {},
        source=_text(name, list(signature), parts),
        before=(kernels[0].call.before[0], wide, str(total), "1", "1"),
        mended=True,
    )  # fmt: skip
    return TritonKernel(
        call,
        _tile(total, max(k.tile.warps for k in kernels)),
        FlatKernel(name, (), (), tuple(n for k in kernels for n in k.flat.nodes), whole.stored),
        tuple(_memory(v, buffers, kernels) for v in memory),
        signature,
        any(k.checked for k in kernels),
        combines=tuple(k.call.kernel.name for k in kernels),
    )


def _memory(value: str, buffers: Mapping[str, Buffer], kernels: Sequence[TritonKernel]) -> Buffer:
    """Return the buffer behind an argument."""
    if value in buffers:
        return buffers[value]
    places = ((k, (*k.call.loads, *k.call.stores)) for k in kernels)
    return next(k.memory[names.index(value)] for k, names in places if value in names)


def _tile(programs: int, warps: int) -> Tile:
    """Return one program for each number."""
    axis = Axis("number", to_index(programs))
    return Tile((TileDimension("y", (), 1), TileDimension("x", (axis,), 1)), (), warps)


def _parts(kernels: Sequence[TritonKernel], argument_of: Mapping[str, str]) -> Iterator[_SameCode]:
    same: dict[tuple[str, int], list[TritonKernel]] = {}
    for kernel in kernels:
        same.setdefault((kernel.call.code, _programs(kernel)), []).append(kernel)
    for (code, programs), found in same.items():
        given = tuple(
            tuple(argument_of[v] for v in (*k.call.loads, *k.call.stores, *k.call.parameters))
            for k in found
        )
        yield _SameCode(code, found[0].tile.constants, programs, given)


def _programs(kernel: TritonKernel) -> int:
    """Return the programs that compute a kernel."""
    x, y, alone = (int(text) for text in kernel.call.before[2:])
    blocks = {group.name: group.block for group in kernel.tile.groups}
    return -(-x // blocks["x"]) * -(-y // blocks.get("y", 1)) * alone


def _text(name: str, arguments: Sequence[str], parts: Sequence[_SameCode]) -> str:
    constants = ("INDEX", "YBLOCK", "XBLOCK")
    given = ", ".join([*arguments, *(f"{c}: tl.constexpr" for c in constants)])
    ends = [*accumulate(part.programs for part in parts)]

    def leaf(k: int) -> Lines:
        return _called(parts[k], k, ends[k] - parts[k].programs)

    lines = ["program = tl.program_id(0).to(INDEX)", *_chosen("program", ends, leaf)]
    return "\n".join([f"@triton.jit\ndef {name}({given}):", *(f"    {s}" for s in lines), ""])


def _called(part: _SameCode, number: int, start: int) -> Lines:
    """Yield the call of a part, whose first program has the number `start`."""
    program = f"program - {start}" if start else "program"
    chosen: Sequence[str] = part.given[0]
    if len(part.given) > 1:
        chosen = [f"chosen_{number}_{k}" for k in range(len(part.given[0]))]
        targets = ", ".join(chosen)
        which = f"which_{number}"
        yield f"{which} = ({program}) // {part.each}"

        def leaf(k: int) -> Lines:
            yield f"{targets} = {', '.join(part.given[k])}"

        yield from _chosen(which, [*range(1, len(part.given) + 1)], leaf)
        program = f"({program}) % {part.each}"
    constants = ", ".join(f"{name}={value}" for name, value in part.constants.items())
    yield f"{part.code}({', '.join([*chosen, program, 'INDEX'])}, {constants})"


def _chosen(value: str, ends: Sequence[int], leaf: Callable[[int], Lines]) -> Lines:
    """Statements that run the first leaf whose end is above the value, found by halving."""

    def between(low: int, high: int) -> Lines:
        if high - low == 1:
            yield from leaf(low)
            return
        middle = (low + high) // 2
        yield f"if {value} < {ends[middle - 1]}:"
        yield from (f"    {line}" for line in between(low, middle))
        yield "else:"
        yield from (f"    {line}" for line in between(middle, high))

    return between(0, len(ends))


def with_combos(
    kernels: Mapping[str, TritonKernel],
) -> tuple[dict[str, TritonKernel], dict[str, TritonKernel]]:
    """(kernels that are launched, parts of those), where each part's call names its combo."""
    members: dict[str, list[TritonKernel]] = {}
    for kernel in kernels.values():
        if combo := kernel.call.kernel.combo:
            members.setdefault(combo, []).append(kernel)
    combos = {name: combined(name, found) for name, found in members.items()}
    launched = {n: k for n, k in kernels.items() if not k.call.kernel.combo} | combos
    parts = {
        name: replace(kernel, call=replace(kernel.call, combo=combos[combo].call))
        for name, kernel in kernels.items()
        if (combo := kernel.call.kernel.combo)
    }
    return launched, parts
