"""Guards as Dynamo prints them: how many there are, and those on values of the program."""

from __future__ import annotations

import re

GUARD = re.compile(r"^[| ]*\+- ([A-Z][A-Z_]+): (.*)$", re.MULTILINE)
"""A line of the tree that is a guard, not the way to a value."""

ABOUT_TORCH = frozenset(
    {
        "GLOBAL_STATE", "TORCH_FUNCTION_MODE_STACK", "DEFAULT_DEVICE", "LAMBDA_GUARD",
        "DIMENSION_DYNAMIC_MARKING_GUARD", "NO_TENSOR_ALIASING", "STORAGE_OVERLAPPING",
        "NO_HASATTR", "DICT_CONTAINS", "DICT_VERSION", "NOT_NONE",
    }
)  # fmt: skip
"""Kinds that hold in nearly every program, whatever its values are."""

SHAPE = re.compile(r"\b(?:Eq|Ne|Mod)\(|[<>]=?|\bs\d+\b")
WIDEST = 200


def counted(text: str) -> int:
    """All guards of the tree."""
    return len(GUARD.findall(text))


def on_values(text: str) -> list[str]:
    """The guards on what a caller can change: tensors, sizes, numbers. "KIND: condition" each."""
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
    """The condition without the line it comes from; of a tensor what a caller would recognise."""
    plain = " ".join(re.split(r"\s{2,}# | # ", text)[0].split())
    if kind == "TENSOR_MATCH" and (found := TENSOR.search(plain)):
        name, dtype, rest = found.groups()
        return f"{name} is {dtype.removeprefix('torch.')} {rest}"
    return plain[:WIDEST]


TENSOR = re.compile(r"check_tensor\((.+?), .*?\), (torch\.\w+), device=[^,]*, (.*)\)$")
