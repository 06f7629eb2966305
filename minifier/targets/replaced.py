"""Finds the units of inductor that this program has replaced."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from tcdebug.minifier.cases.user_frames import folders_of_torch

TABLES = {
    "lower": ("torch._inductor.lowering", "lowerings"),
    "decompose": ("torch._inductor.decomposition", "decompositions"),
}
"""The module and the name of the table of functions by operator, by family of units."""
OVERRIDES = ("torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
"""The modules whose classes `...Overrides` write the code of one operation per method."""


def replaced_by_program(unit: str) -> bool:
    """Return whether this program has replaced what inductor does for the operator of a unit.

    A process without the program then has another lowering, decomposition or code for it.
    """
    family, _, operator = unit.partition(".")
    return family in TABLES and any(map(is_foreign, _functions(family, operator)))


def _functions(family: str, operator: str) -> Iterator[Any]:
    """Yield what inductor calls for an operator such as `aten.tanh.default`, where it is loaded."""
    place, table = TABLES[family]
    for known, function in getattr(sys.modules.get(place), table, {}).items():
        if str(known) == operator:
            yield function
    operation = operator.split(".")[1] if operator.count(".") > 1 else operator
    for module in filter(None, map(sys.modules.get, OVERRIDES)):
        for written in vars(module).values():
            if inspect.isclass(written) and written.__name__.endswith("Overrides"):
                yield getattr(written, operation, None)


def is_foreign(function: Any) -> bool:
    """Return whether a function is defined outside torch."""
    if not callable(function):
        return False
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        return False
    return not plain.__code__.co_filename.startswith(folders_of_torch())
