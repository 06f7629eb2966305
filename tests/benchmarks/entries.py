"""Bisects a fault of each kind behind each entry to inductor, and runs the repros.

    python tests/benchmarks/entries.py
    python tests/benchmarks/entries.py --entries aoti_package,piecewise --kinds hang

Prints the culprit, what is left of the graph or of the script, what the repro calls, the result of
one run of it unchanged and one with the culprit off, in an empty folder, and the cost. Rows share
the caches of compilers.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from inductor_bugs import measured

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality" / "support"))

from planted_bisect import CONFIRMED_FAILURE
from repros_alone import alone

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
LOWERING = "lower.aten.tanh.default"
ENTRIES = {
    "aoti_package": ("inductor_entry.py", "aoti_package {kind}", LOWERING),
    "compile_fx": ("inductor_entry.py", "compile_fx {kind}", LOWERING),
    "standalone_compile": ("inductor_entry.py", "standalone_compile {kind}", LOWERING),
    "piecewise": ("piecewise_backend.py", "{kind}", "user.fused_norm"),
    "joint passes in a backend": ("joint_passes.py", "{kind} compile", "user.fast_tanh"),
    "joint passes": ("joint_passes.py", "{kind} direct", "user.fast_tanh"),
}
"""Entry -> script, its arguments, and the unit with the fault."""


def row(entry: str, kind: str, caches: Path) -> str:
    """The cells of a row."""
    script, arguments, unit = ENTRIES[entry]
    given = arguments.format(kind=kind).split()
    options = ["--json", "--quiet", "--timeout", "25", "--seconds", "900"]
    asked = [sys.executable, "-m", "tcdebug", "bisect", *options, str(SCRIPTS / script), *given]
    with tempfile.TemporaryDirectory() as name:
        kept = {
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TCDEBUG_CACHE_DIR": str(caches / "tcdebug"),
        }
        run = measured("tcdebug", asked, Path(name), {"OMP_NUM_THREADS": "1", **kept})
        if "{" not in run.output:
            return f"no report: {run.output[-300:]}"
        report = json.loads(run.output[run.output.index("{") :].splitlines()[0])
        if not report["faults"]:
            costs = f"{report['reruns']:4} {run.cpu_seconds:7.1f} {run.seconds:7.1f}"
            return f"NOT NAMED {report['status']} {costs}  {'; '.join(report['notes'])}"
        fault = report["faults"][0]
        culprits = ", ".join(c["unit"] for f in report["faults"] for c in f["culprits"])
        failure, expected = report["failure"], CONFIRMED_FAILURE[kind]
        if failure["direction"] == "script" and kind == "wrong":
            expected = "exception"  # of the script's own comparison
        right = (culprits, failure["kind"]) == (unit, expected)
        return (
            f"{'named' if right else f'NOT NAMED {culprits}':9} {report['status']:11} "
            f"{left(report):18} {called(fault):20} {alone(fault, times=1).text():22} "
            f"{report['reruns']:4} {run.cpu_seconds:7.1f} {run.seconds:7.1f}"
            f"  {'; '.join(report['notes'])}"
        )


def left(report: Any) -> str:
    """The size before and after, in nodes or in lines of the script."""
    if small := report["script"]:
        return f"{small['lines_before']} -> {small['lines_after']} lines"
    return f"{report['nodes_before']} -> {report['nodes_after']} nodes"


def called(fault: Any) -> str:
    """What the repro of a fault compiles with."""
    text = Path(fault["repro"]).read_text()
    _, found, rest = text.partition("\nCALL = {'backend': ")
    return rest.partition("}")[0].partition(",")[0] if found else "the script"


def main() -> None:
    """Print a row for each requested entry and kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", default=",".join(ENTRIES))
    parser.add_argument("--kinds", default=",".join(CONFIRMED_FAILURE))
    args = parser.parse_args()
    print(f"{'entry':26} {'kind':9} culprit   status      left               repro calls", end="")
    print(f"          {'alone':22} runs   CPU-s  wall-s")
    with tempfile.TemporaryDirectory() as caches:
        for entry in args.entries.split(","):
            for kind in args.kinds.split(","):
                cells = row(entry, kind, Path(caches))
                print(f"{entry:26} {kind:9} {cells}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
