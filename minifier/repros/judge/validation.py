"""Judges whether a compiled graph accepts inputs on which eager raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcdebug.minifier.repros.judge.calls import SEED
from tcdebug.minifier.repros.judge.exceptions import exception_result


def accepted(
    eager: Callable[..., Any], compiled: Callable[..., Any], inputs: Callable[[], list[Any]]
) -> dict[str, Any]:
    """Return the result: accepted, with the exception of eager; another exception; or ok."""
    refused = raised(eager, inputs())
    if refused is None:
        return {"kind": "ok"}
    other = raised(compiled, inputs())
    if other is None:
        return {"kind": "accepted", "class": refused["class"], "what": refused["what"]}
    same = other["class"] == refused["class"]
    return {"kind": "ok"} if same else {"kind": "exception", **other}


def raised(call: Callable[..., Any], values: Sequence[Any]) -> dict[str, Any] | None:
    """Return what identifies the exception of a call; None if it returns."""
    torch.manual_seed(SEED)
    try:
        call(*values)
    except Exception as error:
        return exception_result(error)
    return None
