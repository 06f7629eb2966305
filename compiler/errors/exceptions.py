"""The exceptions that a failing compile raises."""

from __future__ import annotations

from typing import ClassVar


class Coded(Exception):
    """An error with a code from `codes.CODES`. A traceback shows the code below the message."""

    code: ClassVar[str]

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.add_note(f"{self.code}: tcdebug explain {self.code}")


class CompileError(Coded, RuntimeError):
    """A stage of the compiler failed. Names the stage and, where known, the unit and the node.

    The cause is chained. The compile is not retried, and nothing falls back silently.
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
        """Whether an event was emitted already: the error may pass through several stages."""
        self.stage = stage
        self.unit = unit
        self.node = node
        self.sites = sites
        """The decisions that are suspected. Without them, the compile may succeed."""


class KernelError(Coded, RuntimeError):
    """A kernel cannot compute with its inputs: an integer division by zero, for example."""

    code = "TCD102"
