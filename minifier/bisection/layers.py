"""Finds the layer of torch at fault if no unit of a backend is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask
from tcdebug.minifier.bisection.certainty import Repeatable, confirming_runs
from tcdebug.minifier.cases.layer_names import BACKEND
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.search.repeats import passes_needed
from tcdebug.minifier.targets import ladder

Result = TypeVar("Result")


class Searchable(Repeatable, Protocol):
    """A candidate with repeatable runs, for searches that ask ahead."""

    def searched(self, search: Callable[[Ask], Result]) -> Result:
        """Return the result of a search."""
        ...


@dataclass(frozen=True)
class LayerFinding:
    """A layer, and the rungs that were run. `switch` is the unit that switches the layer off.

    `layer` is empty if the runs do not identify one. `switch` is empty if the layer cannot be
    switched off. `in_doubt` lists the layers that may be at fault if there are several.
    """

    layer: str = ""
    switch: str = ""
    rungs: tuple[ladder.Rung, ...] = ()
    notes: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()

    def decision(self, backend: str) -> Decision:
        """Return the layer as a decision. Only that of the backend has a place: its name."""
        return Decision(
            self.switch, backend if self.switch == BACKEND else self.switch, "", 0, True
        )

    def settled(self) -> LayerFinding:
        """Return it without the doubt, and without the note about that, which is the first."""
        return replace(self, in_doubt=(), notes=self.notes[1:]) if self.in_doubt else self


def find_graph_layer(
    asked: Searchable, base: Toggles, failure: Outcome, confidence: float, backend: str
) -> LayerFinding:
    """Run a graph that fails under `backend` with torch's own backends, each with one layer less.

    Every pass is repeated as often as the failure rate requires, unless the failing run had to be
    interrupted. Raises BudgetUsed.
    """
    if not failure.interrupted:
        rate = asked.rate(base, failure, confirming_runs(failure))
        passes = passes_needed(rate, len(ladder.below(backend)), confidence)
        if passes is None:
            return LayerFinding(notes=("it fails too rarely to find the layer at fault",))
        asked.require_passes(passes)
    layers = ladder.below(backend)
    layer, rungs = asked.searched(lambda ask: ladder.climb_down(ask, base, layers))
    suspects = ladder.in_doubt(failure, rungs, layers)
    notes = [_note(layer, rungs, backend)]
    if len(suspects) > 1:
        notes = [f"any of {', '.join(suspects)} may be at fault"]
    notes += [
        f"{rung.backend} fails in a different way: {rung.outcome.message}"
        for rung in rungs
        if rung.outcome.failed and not failure.same_bug(rung.outcome)
    ]
    switch = "" if layer == ladder.LAST else layer
    doubtful = tuple(suspects) if len(suspects) > 1 else ()
    return LayerFinding(layer, switch, tuple(rungs), tuple(notes), doubtful)


def _note(layer: str, rungs: list[ladder.Rung], backend: str) -> str:
    if layer == ladder.LAST:
        return "it fails with the backend eager too: Dynamo, or the graph itself, is at fault"
    return (
        f"no unit of {backend} was confirmed to be at fault; with {rungs[-1].backend} in place of "
        f"{backend} it passes, so the layer at fault is {layer}"
    )
