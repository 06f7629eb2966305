"""tcdebug units"""

from __future__ import annotations

import sys
from dataclasses import asdict

import msgspec

from tcdebug.cli.options import USAGE
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
        families = sorted({u.name.partition(".")[0] for u in known})
        error(
            "TCD005",
            f"no such unit: {prefix!r}",
            f"tcdebug units lists all; the families are {', '.join(families)}",
        )
        return USAGE
    if as_json:
        sys.stdout.write(msgspec.json.encode([asdict(u) for u in found]).decode() + "\n")
    else:
        show_table(["unit", "what it does"], [(u.name, u.summary) for u in found])
    return 0
