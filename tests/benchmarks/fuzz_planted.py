"""How many programs fuzzing draws until it meets each planted bug, and what it shrinks it to.

    python tests/benchmarks/fuzz_planted.py [SEEDS [UNIT...]]

The bugs are exceptions of the compiler, and no kernel is built: what is counted is programs.
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
MOST = 2000


def hunted(unit: str, seed: int) -> tuple[int, str]:
    """Programs until the bug was met (0: it was not), and the operations that are left of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "tcdebug", "fuzz", "run", f"--setup={SETUP}", f"--seed={seed}",
            f"--examples={MOST}", "--no-bisect", "--stop-after=1", "--json", "-q", "-j1",
        ]  # fmt: skip
        environment = {**os.environ, "PLANTED": f"{unit} exception"}
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        for path in Path(folder).glob(".tcdebug/findings/*/finding.json"):
            found = json.loads(path.read_text())
            if "a planted bug" in found["message"]:
                steps = found["program"]["steps"]
                return found["examples"], " ".join(step["op"] for step in steps)
    return 0, ""


def main() -> None:
    """Print a row a unit."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for unit in sys.argv[2:] or UNITS:
        rows = [hunted(unit, 100_000 * seed) for seed in range(seeds)]
        counts = [count or MOST + 1 for count, _ in rows]
        sys.stdout.write(f"{unit}: {counts}, median {median(counts)}: {[ops for _, ops in rows]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
