"""A version of a user's script, as a candidate of a reduction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b


@dataclass(frozen=True)
class ScriptText:
    """The text of a script, and how it is started.

    A script that is `alone` runs in an empty folder. Otherwise it runs in the folder in which the
    user started the original, and can import what lies beside the original.
    """

    text: str
    args: tuple[str, ...] = ()
    alone: bool = False

    @cached_property
    def key(self) -> str:
        """A key over the text, the arguments and the surroundings."""
        parts = (self.text, str(self.alone), *self.args)
        return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    @cached_property
    def size(self) -> int:
        """The number of lines that are not blank, at least 1."""
        return max(1, sum(1 for line in self.text.splitlines() if line.strip()))

    def with_text(self, text: str) -> ScriptText:
        """Return the same start of another text."""
        return replace(self, text=text)
