"""How many of twenty planted numerical faults `tcdebug values` names: planted_values.py [WORDS].

Each fault is planted in a process of its own. It is named if the report has the right kind and
lists the operator of the plant among its nodes. WORDS, separated by +, select faults by backend
and name.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "minifier" / "support"))
import msgspec
from numerical_faults import FAULTS, NumericalFault, model, took_effect
from observed_models import observe

from tcdebug.minifier.values.findings import REPORT, ValuesReport


def ran(fault: NumericalFault) -> ValuesReport | None:
    """Plant a fault in a forked process; its report, None without one or if nothing was planted."""
    folder = Path(tempfile.mkdtemp())
    if (child := os.fork()) == 0:
        try:
            fault.plant()
            step = partial(model, blocks=fault.blocks, dtype=fault.dtype)
            observe(step, folder, fault.backend, twice=fault.twice)
            if not took_effect():
                (folder / REPORT).unlink()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    path = folder / REPORT
    return msgspec.json.decode(path.read_bytes(), type=ValuesReport) if path.exists() else None


def main() -> None:
    """Print a line for each fault, and one for all."""
    word = " ".join(sys.argv[1:])
    chosen = [f for f in FAULTS if all(w in f"{f.backend} {f.name}" for w in word.split("+"))]
    named = 0
    for fault in chosen:
        start = time.monotonic()
        report = ran(fault)
        found = report.found if report else None
        listed = " ".join(found.nodes) + found.name if found else ""
        right = found is not None and found.kind == fault.kind and fault.operator in listed
        named += right
        what = f"{found.kind} {found.name}: {found.reason}" if found else "nothing"
        seconds = time.monotonic() - start
        verdict = "named" if right else "MISSED"
        line = f"{verdict}  {fault.backend}, {fault.name}: {what[:150]} ({seconds:.0f} s)"
        print(line, flush=True)  # noqa: T201 # its result
    print(f"{named} of {len(chosen)} planted numerical faults named")  # noqa: T201


if __name__ == "__main__":
    main()
