"""What is said of the first stage of AOTAutograd whose values differ, and the file that has it."""

from __future__ import annotations

import msgspec

STAGE = "autograd_stage.json"
"""The file, in a folder of its own."""


class StageFound(msgspec.Struct, frozen=True):
    """The first stage whose values differ, the one before it, and what differs.

    `lines` are the nodes of the captured graph, with "- " in front, and those of the stage.
    """

    stage: str
    last_equal: str
    what: str
    lines: tuple[str, ...] = ()
