"""The base class of all events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events. A subclass sets its kind and level."""

    kind: ClassVar[str] = ""
    level: ClassVar[str] = "info"
