"""Measures each row of tests/quality: the cost, what is left, and whether the repro fails alone.

    python tests/benchmarks/planted_bugs.py inductor
    python tests/benchmarks/planted_bugs.py embedded --units memory.reuse --kinds wrong,hang

Prints runs, CPU-seconds of all processes, nodes before and after, and the results of the repro in
an empty folder: 3 times unchanged and 3 times with the culprit off. Caches are empty at the start
of a row.
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

import planted
import planted_inductor
from planted_bisect import CONFIRMED_FAILURE, arguments, command
from repros_alone import alone

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
MODELS: dict[str, tuple[str, int, Any]] = {
    "embedded": ("planted_model.py", 3, planted.PLANTS),
    "inductor": ("planted_inductor_model.py", 1, planted_inductor.PLANTS),
}
"""Script, blocks of its model, units."""


def row(script: Path, unit: str, kind: str, blocks: int) -> str:
    """The cells of a row."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = command(arguments(unit, kind, blocks, script))
        run = measured("tcdebug", asked, folder, {"OMP_NUM_THREADS": "1"})
        if "{" not in run.output:
            return f"no report: {run.output[-300:]}"
        report = json.loads(run.output[run.output.index("{") :].splitlines()[0])
        found = ", ".join(c["unit"] for c in report["culprits"])
        right = [c["unit"] for c in report["culprits"]] == [unit] and report["confirmed"]
        right = right and report["failure"]["kind"] == CONFIRMED_FAILURE[kind]
        repros = "; ".join(alone(f).text() for f in report["faults"] if f["repro"])
        nodes = f"{report['nodes_before']:3} -> {report['nodes_after']:2}"
        verdict = "" if right else f"  {report['failure']} {found} {report['status']}"
        return (
            f"{report['reruns']:4} {run.cpu_seconds:7.1f} {run.seconds:7.1f}  {nodes}"
            f"  {repros}{verdict} {'; '.join(report['notes'])}"
        )


def main() -> None:
    """Print a row for each requested unit and kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler", choices=sorted(MODELS))
    parser.add_argument("--units", default="")
    parser.add_argument("--kinds", default=",".join(CONFIRMED_FAILURE))
    args = parser.parse_args()
    name, blocks, plants = MODELS[args.compiler]
    print(f"{'unit':36} {'kind':9} runs   CPU-s  wall-s  nodes     repro")
    for unit in args.units.split(",") if args.units else plants:
        for kind in args.kinds.split(","):
            cells = row(SCRIPTS / name, unit, kind, blocks)
            print(f"{unit:36} {kind:9} {cells}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
