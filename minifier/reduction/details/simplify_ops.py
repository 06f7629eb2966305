"""Replace operators by simpler ones that give the same shape and dtype from the same operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.regions import changes_state
from tcdebug.minifier.reduction.operators.surgery import editable, finish, name_of, writes
from tcdebug.minifier.reduction.trial import Observed, observed, same_kind

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

RUNGS = {"neg": 0, "logical_not": 0, "add": 1, "sum": 2, "matmul": 2}
"""The simplest operators by name: rung 0 takes one operand, 1 two, 2 combines elements."""
HIGHEST = max(RUNGS.values())


@dataclass(frozen=True)
class SimplifyOps:
    """Replace any subset of the calls by operators of this rung; see `RUNGS`."""

    rung: int = 0
    name: str = "simplify_ops"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the calls of operators above this rung that have a replacement."""
        known = observed(case)
        return [n.name for n in case.calls if self._simpler(n, known) is not None]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph with these calls replaced by simpler operators."""
        known = observed(case)
        graph, named = editable(case)
        for node in case.calls:
            if node.name not in edits:
                continue
            found = self._simpler(node, known)
            if found is None:
                return None
            target, args, kwargs = found
            old = named[node.name]
            with graph.inserting_before(old):
                new = graph.call_function(
                    target, fx.node.map_arg(args, lambda n: named[n.name]), kwargs
                )
            new.meta = dict(old.meta)
            old.replace_all_uses_with(new)
            graph.erase_node(old)
            named[node.name] = new
        return finish(case, graph)

    def _simpler(self, node: fx.Node, known: Observed) -> Call | None:
        """Return the first call of this rung that gives the same shape and dtype as the node."""
        if complexity(node) <= self.rung or writes(node) or changes_state(node):
            return None
        wanted = known.values.get(node.name)
        tensors = [n for n in node.all_input_nodes if _is_tensor(known.values.get(n.name))]
        for target, args, kwargs in _calls(self.rung, node, tensors):
            if same_kind(known.result(target, args, kwargs), wanted):
                return target, args, kwargs
        return None


def complexity(node: fx.Node) -> int:
    """Return the rung of a call's operator. Operators that are not in `RUNGS` rank above it."""
    return RUNGS.get(name_of(node), HIGHEST + 1)


def _calls(rung: int, node: fx.Node, tensors: Sequence[fx.Node]) -> Iterator[Call]:
    match rung:
        case 0:
            for function in (torch.neg, torch.logical_not):
                yield from ((function, (operand,), {}) for operand in tensors)
        case 1:
            yield from ((torch.add, pair, {}) for pair in itertools.combinations(tensors, 2))
        case _:
            yield torch.sum, tuple(node.args), dict(node.kwargs)
            yield from ((torch.matmul, pair, {}) for pair in itertools.permutations(tensors, 2))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
