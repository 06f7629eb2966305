"""The first stage of AOTAutograd whose values differ, and the file that stores it."""

from __future__ import annotations

import msgspec

STAGE = "autograd_stage.json"
"""The name of the file. Each one has its own folder."""


class StageFound(msgspec.Struct, frozen=True):
    """The first stage whose values differ, the stage before it, and the difference.

    `lines` are the nodes of the captured graph, prefixed with "- ", and the nodes of the stage.
    """

    stage: str
    last_equal: str
    what: str
    lines: tuple[str, ...] = ()
