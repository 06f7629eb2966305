"""The profile of a script: the cost of lines, of kernels and of graphs."""

from __future__ import annotations

import msgspec


class KernelCost(msgspec.Struct):
    """The measured calls of a kernel, of a library call, or of an operator outside of graphs.

    `graph` is compile id and direction; empty for an operator that runs in eager. For a library
    call or an operator on a GPU, `device_kernels` are the kernels that it launched. None means
    unknown.
    """

    name: str
    kind: str
    """generated, library or eager."""
    device: str
    """cpu or cuda."""
    graph: str
    nodes: list[str]
    lines: dict[str, int]
    """The user's lines, as FILE:N, with the number of nodes that each has in the kernel, the line
    with most nodes first. The number is 0 if it is unknown."""
    calls: int
    seconds: float
    mean_seconds: float
    share: float
    """The share of all measured time on this type of device."""
    moved: int | None = None
    """The bytes that one call reads and writes, by the sizes of its buffers."""
    bandwidth: float | None = None
    """Bytes per second."""
    of_copy: float | None = None
    """The bandwidth as a multiple of what the device reads and writes in a copy."""
    registers: int | None = None
    """Registers per thread."""
    spilled: int | None = None
    """Bytes of local memory per thread: spilled registers, and arrays of functions such as sin."""
    shared: int | None = None
    """Bytes of shared memory per block."""
    occupancy: float | None = None
    """The estimated occupancy, 0 to 1."""
    device_kernels: list[str] = []
    where: str = ""
    """For an operator in eager: where it runs."""


class LineCost(msgspec.Struct):
    """The kernels that compute a line of the program.

    A fused kernel computes several lines, and its time counts for each of them. `alone` is the time
    of the kernels that compute only this line. `nodes` counts the nodes of the line in all kernels.
    """

    line: str
    source: str
    device: str
    seconds: float
    alone: float
    share: float
    nodes: int
    kernels: list[str]


class GraphTime(msgspec.Struct):
    """The measured calls of a compiled graph, and the time of its kernels and library calls."""

    graph: str
    calls: int
    seconds: float
    """The time of the host in the graph."""
    kernel_seconds: float
    first_call: bool = False
    """Whether the only call is the first one, which is slower."""


class Profile(msgspec.Struct):
    """The cost of a script that runs compiled, by line, kernel and graph."""

    run: str
    trace: str
    """The file for Perfetto."""
    steps: int
    """The number of measured steps: calls of the compiled frame that runs first."""
    warm_up: int
    """The number of steps before them, which are left out."""
    step_seconds: float | None
    copy_speeds: dict[str, float]
    """Bytes per second that each type of device reads and writes in a copy, measured in the run."""
    overhead_seconds: float
    """The estimated time that profiling adds to a step on the host."""
    lines: list[LineCost]
    kernels: list[KernelCost]
    graphs: list[GraphTime]
    notes: list[str]
