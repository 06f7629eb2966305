"""Lets a script save what torch has cached also where nothing is compiled or cached.

`torch.compiler.save_cache_artifacts` returns None there. A script that unpacks the result, or
asserts that there is one, would fail without a layer for this reason alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.compiler._cache import CacheInfo
from torch.utils._appending_byte_serializer import AppendingByteSerializer

from tcdebug.compiler.patching import Patch
from tcdebug.minifier.processes.callers import called_by_user

SAVE = Patch(
    "torch.compiler",
    "save_cache_artifacts",
    "scripts that save what torch has cached fail where nothing is cached",
)
PATCHES = (SAVE,)


def saving_something(original: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap the function that saves caches: it gives a script an empty bundle if there is nothing.

    torch's own callers still get None.
    """

    @functools.wraps(original)
    def save() -> Any:
        saved = original()
        if saved is not None or not called_by_user(sys._getframe(1)):
            return saved
        return _empty(), CacheInfo()

    return save


def _empty() -> bytes:
    """Return a bundle that torch loads, without entries."""
    return AppendingByteSerializer(serialize_fn=lambda writer, entry: None).to_bytes()
