"""Switches units off in a running program, for any backend."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.processes.subprocess_hook import hook_installed
from tcdebug.minifier.sessions.off import switched
from tcdebug.minifier.targets.unit_names import check_toggles


@contextlib.contextmanager
def switched_off(*toggles: str) -> Iterator[list[Decision]]:
    """Switch units off for compiles in this block: `with tcdebug.switched_off("fuse"): ...`.

    This includes compiles of Python processes that the block starts. Takes the toggles of `--off`.
    `only:UNIT` allows nothing else, and `layer.NAME` switches a layer of torch off. Yields the
    decisions of inductor, and of backends built on AOTAutograd, as they are made; the embedded
    compiler writes its decisions to the log. Code that is compiled already stays: call
    torch.compiler.reset() first. Raises BadToggle, also for an unknown unit. Names that torch gives
    only while it compiles, such as those of patterns, are not checked.
    """
    parsed = Toggles.parse(toggles)
    check_toggles(parsed)
    before = os.environ.get("TCDEBUG_OFF")
    os.environ["TCDEBUG_OFF"] = ",".join(parsed.texts())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tcdebug-off-") as folder,
            hook_installed("off:", Path(folder)),
            switched(parsed) as decisions,
        ):
            yield decisions
    finally:
        if before is None:
            del os.environ["TCDEBUG_OFF"]
        else:
            os.environ["TCDEBUG_OFF"] = before
