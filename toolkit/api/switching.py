"""Units switched off in a running program, whatever backend compiles."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.processes.subprocess_hook import followed
from tcdebug.minifier.sessions.off import switched
from tcdebug.minifier.targets.unit_names import check_toggles


@contextlib.contextmanager
def switched_off(*toggles: str) -> Iterator[list[Decision]]:
    """Compiles in this block go without some units: `with tcdebug.switched_off("fuse"): ...`.

    So do those of Python processes that are started in it. Takes what `--off` takes; `only:UNIT`
    lets nothing else through, and `layer.NAME` switches a layer of torch off. Yields the decisions
    of inductor, and of backends built on AOTAutograd, as they are taken; the embedded compiler
    writes its own to the log. What is compiled already stays: call torch.compiler.reset() first.
    Raises BadToggle, also for a name that no unit has; one that only torch gives while it
    compiles, such as that of a pattern, is not checked.
    """
    parsed = Toggles.parse(toggles)
    check_toggles(parsed)
    before = os.environ.get("TCDEBUG_OFF")
    os.environ["TCDEBUG_OFF"] = ",".join(parsed.texts())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tcdebug-off-") as folder,
            followed("off:", Path(folder)),
            switched(parsed) as decisions,
        ):
            yield decisions
    finally:
        if before is None:
            del os.environ["TCDEBUG_OFF"]
        else:
            os.environ["TCDEBUG_OFF"] = before
