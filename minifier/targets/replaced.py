"""Finds the units of inductor that this program has replaced."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from types import FunctionType
from typing import Any

import torch

from tcdebug.minifier.cases.user_frames import folders_of_torch
from tcdebug.minifier.processes.subprocess_hook import AfterImport

TABLES = {
    "lower": ("torch._inductor.lowering", "lowerings"),
    "decompose": ("torch._inductor.decomposition", "decompositions"),
}
"""The module and the name of the table of functions by operator, by family of units."""
OVERRIDES = ("torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
"""The modules whose classes `...Overrides` write the code of one operation per method."""


class LoadedFunctions:
    """What inductor calls for each operator, as its modules were when they were loaded.

    A module that was loaded before is taken as it is when `recorded` is entered.
    """

    def __init__(self) -> None:
        self.by_module: dict[str, dict[str, Any]] = {}

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the functions of each module, at once or after it is imported."""
        hook = AfterImport({})
        for module in (*(place for place, _ in TABLES.values()), *OVERRIDES):
            record = partial(self._record, module)
            if module in sys.modules:
                record()
            else:
                hook.wanted[module] = record
        sys.meta_path.insert(0, hook)
        try:
            yield
        finally:
            hook.wanted.clear()  # the program may have removed the hook

    def _record(self, module: str) -> None:
        self.by_module[module] = dict(_functions(module))

    def replaced(self, unit: str) -> bool:
        """Return whether this program has replaced what inductor does for the operator of a unit.

        A process without the program then has another lowering, decomposition or code for it. If a
        module was not recorded, only functions that are defined outside torch are found.
        """
        family, _, operator = unit.partition(".")
        if family not in TABLES:
            return False
        operation = operator.split(".")[1] if operator.count(".") > 1 else operator
        return self._differs(TABLES[family][0], operator) or any(
            self._differs(module, operation) for module in OVERRIDES
        )

    def _differs(self, module: str, name: str) -> bool:
        known = self.by_module.get(module, {})
        return any(
            is_foreign(function) or known.get(key, function) != function
            for key, function in _functions(module, name)
        )


def _functions(module: str, wanted: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a module of inductor, if it is loaded, calls: for one name, or for all.

    The keys are operators, or CLASS:OPERATION for the methods that write code.
    """
    loaded = sys.modules.get(module)
    if module not in OVERRIDES:
        table = getattr(loaded, next(t for place, t in TABLES.values() if place == module), {})
        for operator in (_operator(wanted),) if wanted else list(table):
            if operator in table:
                yield str(operator), table[operator]
        return
    for name, written in (vars(loaded) if loaded else {}).items():
        if inspect.isclass(written) and name.endswith("Overrides"):
            for operation in (wanted,) if wanted else dir(written):
                if hasattr(written, operation) and not operation.startswith("_"):
                    yield f"{name}:{operation}", getattr(written, operation)


def _operator(name: str) -> Any:
    """Return an operator such as `aten.tanh.default`; None if there is none of that name."""
    try:
        return attrgetter(name)(torch.ops)
    except AttributeError:
        return None


def is_foreign(function: Any) -> bool:
    """Return whether a function is defined outside torch."""
    if not callable(function):
        return False
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        return False
    return not plain.__code__.co_filename.startswith(folders_of_torch())
