"""Registers the compiler's own operators with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NAMESPACE = "tcdebug"


def register(schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register an operator with torch and return it.

    `function` computes it, and `fake` computes its fake results. Call this once per process for a
    schema; torch raises RuntimeError otherwise.
    """
    name = schema.partition("(")[0]
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call] # torch's
    library.define(schema)  # type: ignore[no-untyped-call] # torch's
    library.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call] # torch's
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    _KEPT.append(library)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


_KEPT: list[torch.library.Library] = []  # a library unregisters its operators when it is deleted
