"""Inputs that share memory or are views. An edit changes all inputs that share it, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import Change, Lineage, Member, lineage


def groups(case: Case) -> dict[str, list[str]]:
    """Return, by the name of each input that shares memory, the inputs it shares it with."""
    family = lineage(case.values())
    by_root: dict[int, list[str]] = {}
    for spec, place in zip(case.inputs, family.places, strict=True):
        if place in family.related:
            by_root.setdefault(family.root(place), []).append(spec.name)
    return {name: names for names in by_root.values() for name in names}


def groups_by_first(case: Case) -> dict[str, list[str]]:
    """Return the groups by their first input, which is the name that edits use."""
    return {names[0]: names for names in groups(case).values()}


def group_lineage(case: Case, names: Sequence[str]) -> Lineage:
    """Return the lineage of one group: its memory and the tensors in it."""
    given = {i.name: i.value for i in case.inputs}
    return lineage([given[name] for name in names])


def has_one_dtype(family: Lineage) -> bool:
    """Return whether the memory of a group can get new contents."""
    return len({m.dtype for m in family.members}) == 1


def rebuild(
    case: Case,
    names: Sequence[str],
    *,
    change: Change | None = None,
    edit: Callable[[Member], Member] | None = None,
) -> dict[str, CaseInput]:
    """Recreate a group with changes to its memory or its members. The recipes are kept."""
    family = group_lineage(case, names)
    if edit is not None:
        family = replace(family, members=tuple(map(edit, family.members)))
    made = family.build(change)
    specs = {i.name: i for i in case.inputs}
    return {
        name: replace(specs[name], value=made[place])
        for name, place in zip(names, family.places, strict=True)
        if place is not None
    }


def resized_group(
    case: Case, names: Sequence[str], sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, CaseInput]:
    """Cut the inputs of a group to their first elements. Each keeps its offset in memory."""
    family = group_lineage(case, names)
    members = list(family.members)
    for name, place in zip(names, family.places, strict=True):
        if place is not None and name in sizes:
            members[place] = replace(members[place], size=sizes[name])
    made = replace(family, members=tuple(members)).build()
    specs = {i.name: i for i in case.inputs}
    return {
        name: replace(specs[name], value=made[place])
        for name, place in zip(names, family.places, strict=True)
        if place is not None
    }
