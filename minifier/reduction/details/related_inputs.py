"""Inputs that share memory or are views: an edit changes all of one memory, or none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import Change, Lineage, Member, lineage


def groups(case: Case) -> dict[str, list[str]]:
    """The inputs of one memory by the name of each of them, of inputs that are not apart."""
    family = lineage(case.values())
    by_root: dict[int, list[str]] = {}
    for spec, place in zip(case.inputs, family.places, strict=True):
        if place in family.related:
            by_root.setdefault(family.root(place), []).append(spec.name)
    return {name: names for names in by_root.values() for name in names}


def firsts(case: Case) -> dict[str, list[str]]:
    """The groups by their first input, which is how edits name them."""
    return {names[0]: names for names in groups(case).values()}


def group_lineage(case: Case, names: Sequence[str]) -> Lineage:
    """The lineage of a group: one memory, and what lies in it."""
    given = {i.name: i.value for i in case.inputs}
    return lineage([given[name] for name in names])


def has_one_dtype(family: Lineage) -> bool:
    """Whether other contents can be given to the memory of a group."""
    return len({m.dtype for m in family.members}) == 1


def rebuilt(
    case: Case,
    names: Sequence[str],
    *,
    change: Change | None = None,
    edit: Callable[[Member], Member] | None = None,
) -> dict[str, CaseInput]:
    """A group made again with its memory or its members changed; the recipes are kept."""
    family = group_lineage(case, names)
    if edit is not None:
        family = replace(family, members=tuple(map(edit, family.members)))
    made = family.built(change)
    specs = {i.name: i for i in case.inputs}
    return {
        name: replace(specs[name], value=made[place])
        for name, place in zip(names, family.places, strict=True)
        if place is not None
    }


def resized_group(
    case: Case, names: Sequence[str], sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, CaseInput]:
    """A group whose inputs have their first elements only; each stays where it is in memory."""
    family = group_lineage(case, names)
    members = list(family.members)
    for name, place in zip(names, family.places, strict=True):
        if place is not None and name in sizes:
            members[place] = replace(members[place], size=sizes[name])
    made = replace(family, members=tuple(members)).built()
    specs = {i.name: i for i in case.inputs}
    return {
        name: replace(specs[name], value=made[place])
        for name, place in zip(names, family.places, strict=True)
        if place is not None
    }
