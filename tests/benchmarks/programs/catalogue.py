"""All programs of the sweep, by family."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable

from programs import fusions, models, modules, networks, operators, optimizers, reductions
from programs.program import Place, Program

Source = Callable[[Place], Iterable[Program]]
SOURCES: tuple[Source, ...] = (
    networks.programs,
    models.programs,
    reductions.programs,
    reductions.gradients,
    modules.programs,
    optimizers.programs,
    fusions.programs,
    operators.programs,
)


def catalogue(place: Place) -> dict[str, Program]:
    """Name -> program, for a place. Programs of the fuzzer are missing without Hypothesis."""
    sources = list(SOURCES)
    if importlib.util.find_spec("hypothesis") is not None:
        sources.append(importlib.import_module("programs.fuzzed").programs)
    return {program.name: program for source in sources for program in source(place)}
