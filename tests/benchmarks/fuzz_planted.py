"""How many programs fuzzing draws until it meets each planted bug, and what it shrinks it to.

    python tests/benchmarks/fuzz_planted.py [SEEDS [UNIT:KIND...]]

Without rows: every unit as an exception, and other ways to fail of a lowering and of kernels. For
an exception no kernel is built: what is counted is programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

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
"""Kind -> what the signature or message of its finding has in it."""


def hunted(unit: str, kind: str, seed: int) -> tuple[int, str]:
    """Programs until the bug was met (0: it was not), and the operations that are left of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "tcdebug", "fuzz", "run", f"--setup={SETUP}", f"--seed={seed}",
            f"--examples={MOST}", "--no-bisect", "--stop-after=1", "--json", "-q", "-j1",
            "--timeout=10",
        ]  # fmt: skip
        environment = {**os.environ, "PLANTED": f"{unit} {kind}"}
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        for path in Path(folder).glob(".tcdebug/findings/*/finding.json"):
            found = json.loads(path.read_text())
            if SHOWN[kind] in f"{found['signature']} {found['message']}":
                steps = found["program"]["steps"]
                return found["examples"], " ".join(step["op"] for step in steps)
    return 0, ""


def main() -> None:
    """Print a line a row."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for unit, kind in [tuple(row.split(":")) for row in sys.argv[2:]] or ROWS:
        rows = [hunted(unit, kind, 100_000 * seed) for seed in range(seeds)]
        counts = [count or MOST + 1 for count, _ in rows]
        left = [ops for _, ops in rows]
        sys.stdout.write(f"{unit} {kind}: {counts}, median {median(counts)}: {left}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
