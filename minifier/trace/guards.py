"""Guards as Dynamo prints them: their number, and those on values of the program."""

from __future__ import annotations

import re

GUARD = re.compile(r"^[| ]*\+- ([A-Z][A-Z_]+): (.*)$", re.MULTILINE)
"""A line of the guard tree that is a guard rather than an accessor."""

ABOUT_TORCH = frozenset(
    {
        "GLOBAL_STATE", "TORCH_FUNCTION_MODE_STACK", "DEFAULT_DEVICE", "LAMBDA_GUARD",
        "DIMENSION_DYNAMIC_MARKING_GUARD", "NO_TENSOR_ALIASING", "STORAGE_OVERLAPPING",
        "NO_HASATTR", "DICT_CONTAINS", "DICT_VERSION", "NOT_NONE",
    }
)  # fmt: skip
"""Kinds that are present in nearly every program, whatever its values are."""

SHAPE = re.compile(r"\b(?:Eq|Ne|Mod)\(|[<>]=?|\bs\d+\b")
MAX_CONDITION = 200
"""Characters of a condition that are kept."""


def count_guards(text: str) -> int:
    """Return the number of guards in the tree."""
    return len(GUARD.findall(text))


def value_guards(text: str) -> list[str]:
    """Return the guards on tensors, sizes and numbers of the caller, as "KIND: condition"."""
    return list(
        dict.fromkeys(
            f"{kind}: {_condition(kind, condition)}"
            for kind, condition in GUARD.findall(text)
            if _matters(kind, condition)
        )
    )


def _matters(kind: str, condition: str) -> bool:
    if kind == "LAMBDA_GUARD":
        return "L['" in condition and SHAPE.search(condition) is not None
    if kind in ("ID_MATCH", "TYPE_MATCH", "CLASS_MATCH", "FUNCTION_MATCH"):
        return "___check" not in condition
    return kind not in ABOUT_TORCH


def _condition(kind: str, text: str) -> str:
    """Return the condition without its source line. Tensors are described for the caller."""
    plain = " ".join(re.split(r"\s{2,}# | # ", text)[0].split())
    if kind == "TENSOR_MATCH" and (found := TENSOR.search(plain)):
        name, dtype, rest = found.groups()
        return f"{name} is {dtype.removeprefix('torch.')} {rest}"
    return plain[:MAX_CONDITION]


TENSOR = re.compile(r"check_tensor\((.+?), .*?\), (torch\.\w+), device=[^,]*, (.*)\)$")
