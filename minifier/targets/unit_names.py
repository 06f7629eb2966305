"""Checks that toggles name units that can be switched off, and suggests similar names.

The names of most units are known before a compile. Those of inductor's passes and patterns, and of
options of a vendor's backend, are known only when a compile asks about them; see `OPEN`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

import torch

from tcdebug.compiler.gate.gated import FAMILY as PROGRAM
from tcdebug.compiler.gate.nearest import nearest
from tcdebug.compiler.gate.toggles import ALL, BadToggle, Toggles, belongs
from tcdebug.compiler.units import units as embedded_units
from tcdebug.minifier.cases.layer_names import LAYERS

OPEN = (
    "pregrad", "passes", "joint", "postgrad", "freezing", "pass", "option", "config",
    "dynamo.frame", "autograd.config", PROGRAM,
)  # fmt: skip
"""Families in which a program, or torch during a compile, creates names."""
OPERATORS = re.compile(
    r"(?:lower|decompose|autograd\.(?:decomposition|fake_kernel|functionalization))\.(?=.)"
)
"""The prefix of a name that continues with an operator."""
OWN_NAMESPACES = ("aten", "prims")
"""Namespaces of torch's operators. A program adds operators in others."""


def check_toggles(toggles: Toggles, *, complete: bool = False) -> None:
    """Check that every toggle names units that may exist. Raises BadToggle.

    A name in an open family passes unless the program is `complete`. Everything that the program
    registers with the embedded compiler is then known, and an unknown pass does not exist.
    """
    for name in (*sorted(toggles.off), *toggles.first, *sorted(toggles.only)):
        if not is_unit(name, complete=complete):
            raise BadToggle(f"no unit {name!r}; {near_text(name)}")


def is_unit(name: str, *, complete: bool = False) -> bool:
    """Return whether a name is that of a unit, or a prefix of the names of several."""
    if name == ALL or any(belongs(unit.name, name) for unit in embedded_units()):
        return True
    closed = ("passes",) if complete else ()
    if any(belongs(name, family) for family in OPEN if family not in closed):
        return True
    operator = OPERATORS.match(name)
    if operator is not None:
        rest = name[operator.end() :]
        if _is_operator(rest) or (not complete and _may_be_registered(rest)):
            return True
    return any(belongs(known, name) for known in _fixed())


def near_text(name: str, others: Iterable[str] = ()) -> str:
    """Suggest replacements for a name that is not a unit."""
    near = nearest(name, [*others, *_known()])
    return f"the nearest are: {', '.join(near)}" if near else f"the families are: {_families()}"


def check_units(texts: Iterable[str]) -> None:
    """Check that toggles name current units of the embedded compiler. Raises BadToggle."""
    check_toggles(Toggles.parse(texts), complete=True)


def check_asked(texts: Iterable[str], asked: Iterable[str], known: Iterable[str]) -> None:
    """Check that a compile asked about the units that toggles name. Raises BadToggle.

    This covers names that only a compile knows, such as those of patterns. The `known` units need
    not be asked about, because another toggle may keep their step from being reached.
    """
    toggles, seen = Toggles.parse(texts), tuple(asked)
    off = replace(toggles, only=frozenset(), off=toggles.off - frozenset(known))
    missing = {**unasked(off, seen)}
    only = unasked(replace(toggles, off=frozenset(), first={}), seen)
    if len(only) == len(toggles.only):
        missing |= only
    for name, near in missing.items():
        raise BadToggle(f"no step of this compile was called {name!r}; {near}")


def unasked(toggles: Toggles, asked: Iterable[str]) -> Mapping[str, str]:
    """Return the names in open families that no compile asked about, with suggestions."""
    seen = set(asked)
    return {
        name: near_text(name, seen)
        for name in (*sorted(toggles.off), *toggles.first, *sorted(toggles.only))
        if _is_open(name) and not any(belongs(unit, name) for unit in (*seen, *_known()))
    }


def _known() -> tuple[str, ...]:
    """Return the names that are known now. The embedded compiler's include registered ones."""
    return (*(unit.name for unit in embedded_units()), *_fixed())


@lru_cache(maxsize=1)
def _fixed() -> tuple[str, ...]:
    """Return the units of inductor, AOTAutograd and Dynamo, and the layers of torch."""
    from tcdebug.minifier.targets.inductor.units import units  # noqa: PLC0415 - start-up time

    return (*(unit.name for unit in units()), *LAYERS)


def _may_be_registered(name: str) -> bool:
    """Return whether a program may register an operator with this name."""
    namespace, dot, operator = name.partition(".")
    if not dot or namespace in OWN_NAMESPACES or _is_operator(name):
        return False
    meant = difflib.get_close_matches(namespace, OWN_NAMESPACES, 1)
    return not (meant and _is_operator(f"{meant[0]}.{operator}"))


def _is_open(name: str) -> bool:
    """Return whether a name may be that of a unit which only a compile knows."""
    if any(name.startswith(f"{family}.") for family in OPEN):
        return True
    operator = OPERATORS.match(name)
    return operator is not None and _may_be_registered(name[operator.end() :])


def _families() -> str:
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in _known()))


def _is_operator(name: str) -> bool:
    """Return whether torch has an operator or an overload with this name."""
    found: object = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return callable(found) and "." in name
