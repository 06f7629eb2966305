"""tcdebug units"""

from __future__ import annotations

import sys
from dataclasses import asdict

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.compiler.gate.nearest import nearest
from tcdebug.compiler.gate.toggles import belongs
from tcdebug.compiler.units import units
from tcdebug.display.console import error
from tcdebug.display.tables import show_table


def run(*, prefix: str | None, backend: str, as_json: bool) -> int:
    """List the units of a backend; 2 if there are none below the prefix."""
    if backend == "inductor":
        from tcdebug.minifier.targets.inductor.units import (  # noqa: PLC0415 - start-up time
            units as inductor_units,
        )

        known = list(inductor_units())
    else:
        known = list(units())
    found = [u for u in known if prefix is None or belongs(u.name, prefix)]
    if not found:
        names = [u.name for u in known]
        near = ", ".join(nearest(prefix or "", names))
        families = ", ".join(sorted({name.partition(".")[0] for name in names}))
        which = f"the nearest are: {near}" if near else f"the families are: {families}"
        error("TCD005", f"no unit {prefix!r}; {which}", "tcdebug units lists all")
        return USAGE
    if as_json:
        sys.stdout.write(msgspec.json.encode([asdict(u) for u in found]).decode() + "\n")
    else:
        show_table(["unit", "what it does"], [(u.name, u.summary) for u in found])
    return 0
