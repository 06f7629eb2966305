"""Reads what a command printed with --json, and compares it with the published schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).parents[2] / "docs" / "output.schema.json"


@cache
def schema() -> dict[str, Any]:
    """The published schema."""
    read: dict[str, Any] = json.loads(SCHEMA.read_text())
    return read


def command_of(words: Sequence[str]) -> str:
    """The key, in the schema, of a command line; empty if its output has no schema."""
    given = " ".join(words)
    starts = [name for name in schema()["properties"] if f"{given} ".startswith(f"{name} ")]
    name = max(starts, key=len, default="")
    if name == "doctor" and "--patches" in words:
        return "doctor --patches"
    return "explain CODE" if name == "explain" and words[-1].startswith("TCD") else name


def document(words: Sequence[str], text: str) -> Any:
    """The parsed output of a command line. Raises ValidationError if the schema refuses it."""
    found = json.loads(text)
    if name := command_of(words):
        rule = {**schema()["properties"][name], "$defs": schema()["$defs"]}
        jsonschema.validate(found, rule, jsonschema.Draft202012Validator)
    return found
