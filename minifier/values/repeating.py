"""Finds the first step whose results differ in their bits when it runs twice on equal inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from tcdebug.minifier.values.findings import ComparedValue, WrongStep
from tcdebug.minifier.values.judgement import digest
from tcdebug.minifier.values.observation import MOST_LINES, ObservedPlace, lines_of
from tcdebug.minifier.values.observed_graph import ObservedGraph
from tcdebug.minifier.values.reference import UNINITIALISED, operator_name
from tcdebug.minifier.values.wrapper_code import Effect, Statement


@dataclass(frozen=True)
class WrittenHash:
    """The hash of a value after a step."""

    number: int
    statement: Statement
    name: str
    hash: str
    value: torch.Tensor


@dataclass
class Digests:
    """The hashes of what each step of one call has written."""

    graph: ObservedGraph
    written: list[WrittenHash] = field(default_factory=list)
    number: int = 0

    def before(self, number: int, variables: Mapping[str, Any]) -> None:
        """Count the step."""
        self.number += 1

    def after(self, number: int, variables: Mapping[str, Any]) -> None:
        """Keep the hashes of what a step may have written."""
        statement = self.graph.statements[number]
        if statement.effect is not Effect.COMPUTES:
            return
        self.graph.observation.steps += 1
        access = self.graph.kernels.access(statement)
        names = statement.names if access is None else access.writes
        for name in names:
            for value in _tensors(variables.get(name)):
                self.written.append(WrittenHash(self.number, statement, name, digest(value), value))

    def leave(self) -> None:
        """Do nothing: every value has been seen."""


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, tuple | list) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def first_repeat_difference(
    graph: ObservedGraph, place: ObservedPlace, first: Digests, second: Digests
) -> WrongStep | None:
    """Return the first step whose bits differ between two calls with equal inputs."""
    for one, other in zip_longest(first.written, second.written):
        if one is None or other is None:
            return None
        graph.observation.values += 1
        if one.hash == other.hash:
            continue
        node = graph.nodes.get(one.name, "")
        target = graph.reference.nodes.get(node)
        if target is not None and operator_name(target.target) in UNINITIALISED:
            continue
        step = graph.step(one.number, one.statement)
        nodes = () if target is None else (target,)
        shape = [int(n) for n in one.value.shape]
        dtype = str(one.value.dtype).removeprefix("torch.")
        detail = f"{one.name}: hash {one.hash} in the first run, {other.hash} in the second"
        value = ComparedValue(one.name, node, dtype, shape, other.hash, one.hash, detail=detail)
        return WrongStep(
            step.kind, step.name, place.graph, place.direction, place.call, step.number,
            detail, value, step.source, step.path,
            [str(n.format_node()) for n in nodes][:MOST_LINES], lines_of(nodes),
        )  # fmt: skip
    return None
