"""Runs a compiled graph whose code has hooks, and observes its first calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tcdebug.minifier.cases.case import clone_values
from tcdebug.minifier.values.observation import Observation, ObservedPlace
from tcdebug.minifier.values.observed_call import ObservedCall
from tcdebug.minifier.values.observed_graph import ObservedGraph
from tcdebug.minifier.values.pass_check import check_passes
from tcdebug.minifier.values.repeating import Digests, first_repeat_difference


@dataclass
class ObservedProgram:
    """A compiled ATen graph, called with its arguments in a list."""

    graph: ObservedGraph
    plain: Callable[[list[Any]], Any] | None = None
    hooked: Callable[[list[Any]], Any] | None = None
    calls: int = 0
    running: list[Any] = field(default_factory=list)

    @property
    def observation(self) -> Observation:
        """What this process has observed."""
        return self.graph.observation

    def hooks(self) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
        """Return the hooks before and after a statement, and before the return."""

        def before(number: int, variables: dict[str, Any]) -> None:
            if self.running:
                with self.observation.supervised():
                    self.running[-1].before(number, variables)

        def after(number: int, variables: dict[str, Any]) -> None:
            if self.running:
                with self.observation.supervised():
                    self.running[-1].after(number, variables)

        def leave(number: int, variables: dict[str, Any]) -> None:
            if self.running:
                with self.observation.supervised():
                    self.running[-1].leave()

        return before, after, leave

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph, and compare its values if this call is observed."""
        observation = self.observation
        if (
            self.hooked is None
            or self.running
            or observation.paused
            or observation.found is not None
            or self.calls >= observation.most_calls
        ):
            assert self.plain is not None
            return self.plain(args)
        self.calls += 1
        observation.calls += 1
        if observation.twice:
            return self._twice(args)
        place = ObservedPlace(self.graph.ordinal, self.graph.direction, self.calls)
        with observation.supervised():
            if self.graph.before is not None:
                after = self.graph.reference.module
                check_passes(observation, place, self.graph.before, after, args)
            given = dict(zip(self.graph.inputs, args, strict=True))
            call = ObservedCall(self.graph, place, given)
        results = self._run(call, args)
        with observation.supervised():
            call.check_results(results)
        return results

    def _run(self, call: Any, args: list[Any]) -> Any:
        assert self.hooked is not None
        self.running.append(call)
        try:
            return self.hooked(args)
        finally:
            self.running.pop()

    def _twice(self, args: list[Any]) -> Any:
        """Run the graph on copies and then on its arguments, and compare the bits of each step."""
        place = ObservedPlace(self.graph.ordinal, self.graph.direction, self.calls)
        first, second = Digests(self.graph), Digests(self.graph)
        copies = clone_values(args)
        with torch.random.fork_rng():
            self._run(first, copies)
        results = self._run(second, args)
        if found := first_repeat_difference(self.graph, place, first, second):
            self.observation.find(found)
        return results
