"""How a bug is filed with PyTorch: its signature, the labels of its component, and search terms.

The labels are those that PyTorch's tracker gave to issues of the same kind in 2025 and 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote_plus

from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.report import Report, ReportedFault

COMPILE = "oncall: pt2"
SILENT = "module: correctness (silent)"
ON_CPU = "oncall: cpu inductor"

COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "layer.dynamo.guards": ("module: dynamo", "module: guards"),
    "layer.dynamo": ("module: dynamo",),
    "layer.cache.aotautograd": ("module: pt2-dispatcher",),
    "layer.cache.precompile": ("module: dynamo",),
    "layer.cache.profile": ("module: dynamo",),
    "layer.cache": ("module: inductor",),
    "layer.autograd": ("module: pt2-dispatcher",),
    "layer.decompositions": ("module: pt2-dispatcher",),
    "layer.export": ("oncall: export",),
    "layer.aotinductor": ("module: aotinductor",),
    "autograd": ("module: pt2-dispatcher",),
    "cudagraphs": ("module: cuda graphs", "module: inductor"),
}
"""Layer or family of units -> labels. The most specific name counts; others are of the backend."""

BACKENDS: Mapping[str, tuple[str, ...]] = {
    "inductor": ("module: inductor",),
    "aotinductor": ("module: aotinductor", "module: inductor"),
    "cudagraphs": ("module: cuda graphs",),
    "aot_eager": ("module: pt2-dispatcher",),
    "eager": ("module: dynamo",),
}
"""Backend -> labels."""

MOST_WORDS = 5
"""The limit on words of a message in a search, which finds issues that have all of them."""
TRACKER = "https://github.com/pytorch/pytorch/issues?q="
PATH = re.compile(r"\S*/\S*")
OPERATOR = re.compile(r"(?:aten|prims|higher_order)\.(\w+)")


@dataclass(frozen=True)
class Filing:
    """What identifies the bug in the tracker."""

    signature: str
    labels: tuple[str, ...]
    terms: str

    @property
    def search(self) -> str:
        """The address of the search."""
        return TRACKER + quote_plus(f"is:issue {self.terms}")


def filing(report: Report, fault: ReportedFault, backend: str, *, on_gpu: bool) -> Filing:
    """Return how the first fault of a report is filed: without labels if torch is not at fault."""
    units = [culprit.unit for culprit in fault.culprits] or [report.layer]
    signature = " | ".join(part for part in (*units, fault.failure.signature) if part)
    found = tuple(dict.fromkeys(_labels(units, fault, backend, on_gpu=on_gpu)))
    return Filing(signature, found, " ".join(_terms(units, fault)))


def _labels(
    units: Sequence[str], fault: ReportedFault, backend: str, *, on_gpu: bool
) -> Iterator[str]:
    known = [labels for unit in units if (labels := component(unit) or BACKENDS.get(backend))]
    if fault.misregistered or not known:
        return
    yield COMPILE
    for labels in known:
        yield from labels
    if backend == "inductor" and not on_gpu and ("module: inductor",) in known:
        yield ON_CPU
    if fault.failure.kind == Kind.WRONG:
        yield SILENT


def component(unit: str) -> tuple[str, ...]:
    """Return the labels of a layer or unit; empty if they depend on the backend."""
    below = [name for name in COMPONENTS if f"{unit}.".startswith(f"{name}.")]
    return COMPONENTS[max(below, key=len)] if below else ()


def _terms(units: Sequence[str], fault: ReportedFault) -> Iterator[str]:
    """Yield the words that issues of the same bug are likely to have."""
    yield "torch.compile"
    named = OPERATOR.findall(" ".join(units)) or OPERATOR.findall(" ".join(fault.requires))
    yield from dict.fromkeys(named)
    failure = fault.failure
    if failure.kind == Kind.EXCEPTION:
        *names, message = failure.message.partition("\n")[0].split("Error: ")
        yield from (f"{name.rpartition(' ')[2].rpartition('.')[2]}Error" for name in names[-1:])
        yield from re.findall(r"[A-Za-z_]{3,}", PATH.sub("", message))[:MOST_WORDS]
    else:
        yield {"wrong": "incorrect result", "slow": "slow compile"}.get(failure.kind, failure.kind)
