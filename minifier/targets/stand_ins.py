"""Objects in place of the backends that a program gave to torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class StandIn:
    """A backend in place of one of the program. A compiled module with it is copied as any other.

    A copy in this process keeps the stand-in. A pickled module has the program's own backend, since
    the process that loads it may not be watched.

    It has slots, because torch's wrapper of a backend takes over what is in `__dict__`, and would
    copy that.
    """

    __slots__ = ()

    original: Any

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return _itself, (self.original,)


def _itself(backend: Any) -> Any:
    return backend
