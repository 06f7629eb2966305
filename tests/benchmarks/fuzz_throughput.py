"""Measures programs per CPU-second through eager, the embedded compiler and inductor.

    python tests/benchmarks/fuzz_throughput.py [EXAMPLES]

All three judge the same programs, with one worker and no cached kernel. The time includes
generation and judging, but not the start of the worker. Eager is Dynamo with the backend `eager`,
and everything that the oracles run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

BACKENDS = ("eager", "tcdebug", "inductor")
FIRST = 10


def cpu_seconds(backend: str, examples: int) -> float:
    """CPU-seconds of a campaign with all of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable, "-m", "tcdebug", "fuzz", "run", f"--backend={backend}", "--seed=1",
                f"--examples={examples}", "--no-bisect", "-q", "-j1", "--database=",
            ],
            cwd=folder,
            env={**os.environ, "TCDEBUG_CACHE_DIR": folder},
            capture_output=True,
            check=False,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rate(backend: str, examples: int) -> float:
    """Programs per CPU-second, without the start and the first few programs."""
    return examples / (cpu_seconds(backend, FIRST + examples) - cpu_seconds(backend, FIRST))


def main() -> None:
    """Print one line per backend."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rates = {backend: rate(backend, examples) for backend in BACKENDS}
    for backend, found in rates.items():
        sys.stdout.write(f"{backend}: {found:.2f} programs a CPU-second\n")
    sys.stdout.write(f"embedded / inductor: {rates['tcdebug'] / rates['inductor']:.1f}\n")


if __name__ == "__main__":
    main()
