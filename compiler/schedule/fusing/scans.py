"""Whether scans share loops with other scans and with reductions."""

from __future__ import annotations

from tcdebug.compiler.ir.arithmetic.index import product
from tcdebug.compiler.ir.cost import arithmetic
from tcdebug.compiler.ir.graph import Reduction, Scan
from tcdebug.compiler.ir.operations import SORTS
from tcdebug.compiler.schedule.fusing.align import Loops

DEVICES = ("cuda",)
"""Devices whose kernels hold rows in registers."""
LONGEST_HELD_ROW = 1024
"""The longest row that a kernel on a GPU with a scan and several sweeps holds in registers."""
SIMPLE = 8
"""The arithmetic per point from which scans on a CPU stay apart."""


def scans(loops: Loops) -> bool:
    """Return whether any of the nodes is a scan."""
    return any(isinstance(n, Scan) for n in loops.nodes)


def may_scan_together(first: Loops, second: Loops, *, linked: bool) -> bool:
    """Return whether scans of two groups, if there are any, may share inner loops with the rest.

    The second of `linked` groups reads the first. On a GPU scans may, but a sort shares loops with
    reductions only. On a CPU, scans of simple values may, if they are not linked and nothing is
    reduced: a reduction in the loop of a scan would not be vectorized, nor what one scan reads of
    another. Other values are computed in a loop of their own (codegen/cpp/scan_pieces.py).
    """
    nodes = (*first.nodes, *second.nodes)
    if not (first.inner and second.inner and (scans(first) or scans(second))):
        return True
    if all(n.out.device.type in DEVICES for n in nodes):
        sorts = any(isinstance(n, Scan) and n.kind in SORTS for n in nodes)
        return not sorts or not (scans(first) and scans(second))
    if linked or any(isinstance(n, Reduction) for n in nodes):
        return False
    on_cpu = all(n.out.device.type == "cpu" for n in nodes)
    return on_cpu and sum(arithmetic(n.body) for n in nodes) < SIMPLE


def held_whole(loops: Loops) -> bool:
    """Return whether a program on a GPU holds whole rows in registers.

    Another sweep can then read the states of a scan.
    """
    if any(n.out.device.type not in DEVICES for n in loops.nodes):
        return False
    length = product(a.size for a in loops.inner).constant
    return length is not None and length <= LONGEST_HELD_ROW
