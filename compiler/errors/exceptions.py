"""What a failing compile raises."""

from __future__ import annotations

from typing import ClassVar


class Coded(Exception):
    """An error with a code of `codes.CODES`, which a traceback shows below its message."""

    code: ClassVar[str]

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.add_note(f"{self.code}: tcdebug explain {self.code}")


class CompileError(Coded, RuntimeError):
    """A stage of the compiler failed: which stage, which unit, which node.

    The cause is chained. The compile is not retried and nothing falls back silently.
    """

    code = "TCD101"

    def __init__(
        self,
        stage: str,
        message: str,
        *,
        unit: str = "",
        node: str = "",
        sites: frozenset[str] = frozenset(),
    ) -> None:
        where = f"stage {stage}"
        if unit:
            where += f", unit {unit}"
        if node:
            where += f", node {node}"
        super().__init__(f"tcdebug could not compile ({where}): {message}")
        self.reported = False
        """Whether an event says so already: the error may pass through several stages."""
        self.stage = stage
        self.unit = unit
        self.node = node
        self.sites = sites
        """The decisions without which it may well compile, as far as they are known."""


class KernelError(Coded, RuntimeError):
    """A kernel met data that it cannot compute with, such as an integer division by zero."""

    code = "TCD102"
