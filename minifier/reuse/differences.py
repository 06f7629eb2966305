"""Compares what calls left behind: with a reused graph, with a fresh capture, and in eager."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tcdebug.minifier.judging.compare import difference
from tcdebug.minifier.reuse.reachable import ObjectNode, Reachable

CLOSE = 1e-6
"""The tolerance within which Python numbers are equal."""
NUMBERS = ("int", "float", "bool", "complex")


@dataclass(frozen=True)
class ValueDifference:
    """A path at which two calls left different values, and the difference."""

    path: str
    detail: str


def differences(
    right: Reachable, other: Reachable, reference: Reachable | None = None
) -> Iterator[ValueDifference]:
    """Yield where `other` is wrong if `right` is right.

    With a reference, yield only values that are further from it than those of `right`, and only
    where `right` agrees with the reference up to rounding.
    """
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[int, int, int | None, str]] = [(0, 0, 0, "")]
    while stack:
        r, o, third, path = stack.pop()
        if (r, o) in seen:
            continue
        seen.add((r, o))
        wanted, now = right.nodes[r], other.nodes[o]
        if reference is not None and (third is None or not _same(wanted, reference.nodes[third])):
            continue  # the right value is unknown
        if not _same(wanted, now):
            yield ValueDifference(path, _difference(now, wanted))
            continue
        if found := _tensors_differ(right, other, reference, (r, o, third), path):
            yield found
        behind = {} if reference is None or third is None else dict(reference.nodes[third].children)
        pairs = zip(wanted.children, now.children, strict=True)
        for (label, a), (_, b) in reversed(list(pairs)):
            stack.append((a, b, behind.get(label), path + label))


def _tensors_differ(
    right: Reachable, other: Reachable, reference: Reachable | None,
    places: tuple[int, int, int | None], path: str,
) -> ValueDifference | None:  # fmt: skip
    """Return how two tensors differ; None if they agree or are not tensors with known values."""
    r, o, third = places
    if r not in right.tensors or o not in other.tensors:
        return None
    judge = None if reference is None or third is None else reference.tensors.get(third)
    if reference is not None and judge is None:
        return None
    found = difference(right.tensors[r], other.tensors[o], judge, path)
    if found is None:
        return None
    return ValueDifference(path, _values(right.tensors[r], other.tensors[o], found.detail))


def _same(left: ObjectNode, right: ObjectNode) -> bool:
    """Return whether two nodes are equal except for their children. Floats may differ slightly."""
    if left.kind != right.kind or [c for c, _ in left.children] != [c for c, _ in right.children]:
        return False
    if left.kind == "float" and left.value != right.value:
        return math.isclose(float(left.value), float(right.value), rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(left.value == right.value)


def _difference(now: ObjectNode, wanted: ObjectNode) -> str:
    """Return how two nodes differ, by the labels of their children if by nothing else."""
    texts = _text(now), _text(wanted)
    if texts[0] == texts[1]:
        labels = [{label for label, _ in node.children} for node in (now, wanted)]
        return f"has {_listed(labels[0] - labels[1])} instead of {_listed(labels[1] - labels[0])}"
    return "{} instead of {}".format(*texts)


def _listed(labels: set[str]) -> str:
    return ", ".join(sorted(labels)) or "nothing"


def _text(node: ObjectNode) -> str:
    return str(node.value) if node.kind in NUMBERS else f"{node.kind} {node.value or ''}".strip()


def _values(right: torch.Tensor, other: torch.Tensor, detail: str) -> str:
    """Return both values if they are single numbers, or else how many elements differ."""
    if right.numel() == 1 and other.numel() == 1:
        return f"{other.item()} instead of {right.item()}"
    return detail
