"""Programs a second through eager, the embedded compiler and inductor: the same programs each.

    python tests/benchmarks/fuzz_throughput.py [EXAMPLES]

One worker, no kernel cached; seconds in which programs are judged, drawing them left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

BACKENDS = ("eager", "tcdebug", "inductor")


def rate(backend: str, examples: str) -> float:
    """Programs a second."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                sys.executable, "-m", "tcdebug", "fuzz", "run", f"--backend={backend}", "--seed=1",
                f"--examples={examples}", "--no-bisect", "--json", "-q", "-j1", "--database=",
            ],
            cwd=folder,
            env={**os.environ, "TCDEBUG_CACHE_DIR": folder},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        return float(json.loads(done.stdout)["programs_per_second"])


def main() -> None:
    """Print a line a backend."""
    examples = sys.argv[1] if len(sys.argv) > 1 else "100"
    rates = {backend: rate(backend, examples) for backend in BACKENDS}
    for backend, found in rates.items():
        sys.stdout.write(f"{backend}: {found} programs/s\n")
    sys.stdout.write(f"embedded / inductor: {rates['tcdebug'] / rates['inductor']:.1f}\n")


if __name__ == "__main__":
    main()
