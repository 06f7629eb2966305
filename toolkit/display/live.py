"""A live line on a terminal during a long operation."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

from tcdebug.display.console import messages


class Live:
    """A line on stderr that is overwritten. There is none if quiet or without a terminal."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or messages()
        self.quiet = quiet
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if not self.quiet and self.console.is_terminal:
            self._status = self.console.status("starting", spinner="dots")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
