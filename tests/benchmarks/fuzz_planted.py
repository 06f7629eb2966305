"""Counts the programs that fuzzing needs to find each planted bug.

    python tests/benchmarks/fuzz_planted.py [SEEDS [UNIT:KIND...]]

The default rows are every unit with an exception, and other kinds of failure for a lowering and for
kernels. For an exception, no kernel is built, since only programs are counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tcdebug.reading.run_dir import Tail

SETUP = Path(__file__).resolve().parents[1] / "scripts" / "planted_for_fuzzing.py"
UNITS = (
    "passes.algebraic",
    "decompose.aten.tanh_backward.default",
    "lower.aten.tanh.default",
    "fuse.inline",
    "fuse.reduction",
    "codegen.vectorize",
    "memory.reuse",
)
ROWS = (
    *((unit, "exception") for unit in UNITS),
    *((unit, kind) for unit in UNITS[2:6] for kind in ("wrong",)),
    *((unit, kind) for unit in (UNITS[2], UNITS[5]) for kind in ("segfault", "hang")),
)
MOST = 2000
SHOWN = {"exception": "a planted bug", "wrong": "wrong", "segfault": "SIGSEGV", "hang": "hang"}
"""What the signature of a failure contains, by kind."""


def hunted(unit: str, kind: str, seed: int) -> int:
    """Programs until the bug was found, or MOST + 1. The program is not shrunk."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "tcdebug", "fuzz", "run", f"--setup={SETUP}", f"--seed={seed}",
            f"--examples={MOST}", "--no-bisect", "-q", "-j1", "--timeout=10", "--database=",
        ]  # fmt: skip
        environment = {**os.environ, "PLANTED": f"{unit} {kind}"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return first_met(Path(folder), process, SHOWN[kind])
        finally:
            process.terminate()
            process.wait()


def first_met(folder: Path, process: subprocess.Popen[bytes], shown: str) -> int:
    """Programs up to the first failure whose signature contains this text."""
    tail, programs, ended = None, 0, False
    while not ended:
        ended = process.poll() is not None
        time.sleep(0.1)
        runs = list(folder.glob(".tcdebug/*-fuzz-run"))
        tail = tail or (Tail(runs[0]) if runs else None)
        for record in tail.new() if tail else ():
            if record["event"] == "fuzz.case":
                programs += 1
                case = record["data"]
                if case["status"] == "failed" and shown in case["signature"]:
                    return programs
    return MOST + 1


def main() -> None:
    """Print one line per row."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for unit, kind in [tuple(row.split(":")) for row in sys.argv[2:]] or ROWS:
        counts = [hunted(unit, kind, 100_000 * seed) for seed in range(seeds)]
        sys.stdout.write(f"{unit} {kind}: {counts}, median {median(counts)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
