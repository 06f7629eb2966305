"""Measures the embedded compiler on programs by the hundred, beside inductor and eager.

    python tests/benchmarks/sweep.py --device cpu --seconds 540 [--only 'reductions/*']
    python tests/benchmarks/sweep.py --device cpu --page

Each call of the program continues where the last one stopped, for `--seconds`. Results are lines of
JSON in `--results`. The families of programs take turns, so that an unfinished sweep is a sample
of all. The page has the distribution of the ratios, and every row that loses.

The three versions run in one process, in turns, on one thread of a CPU. A ratio is the median over
the rounds; its noise is estimated from them (`interleaved.py`). Programs run in a child process,
which is started again after a crash, or when a program exceeds `--limit`. With `--workers`, several
of them compile side by side, and one at a time measures its calls. On a GPU with many CPU cores,
that is several times as many programs. The seconds of compiles are then those of a busy machine.
The workers of a part share fresh caches of kernels, so that a first call of either compiler builds.
"""
# ruff: noqa: T201 # a page is what it is for

from __future__ import annotations

import argparse
import fnmatch
import gc
import hashlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from accuracy import difference
from filelock import FileLock
from interleaved import ratio, times
from programs.catalogue import catalogue
from programs.program import Made, Place, Program, caller, tensors
from sweep_page import page

WORKER = "--worker"
PROGRAMS_OF_A_WORKER = 60
"""Programs after which a process is replaced, which returns its memory."""
FIRST = "losses/MSELoss.f32"
"""The program that is compiled before any is measured."""
SCALES = {"cpu": 1, "cuda": 8}
"""The factor of batch sizes on each device, unless `--scale` sets another."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TCDEBUG_CACHE_DIR")
"""The variables that name the folders where the compilers keep what they have built."""


def measured(
    program: Program, device: str, seconds: float, turn: AbstractContextManager[Any]
) -> dict[str, Any]:
    """The row of one program. Its calls are timed while `turn` is held."""
    row: dict[str, Any] = {"name": program.name, "family": program.family}
    torch.manual_seed(0)
    try:
        made = program.make()
        calls = {"eager": caller(made, made.function)}
        torch.manual_seed(0)  # random operators draw alike in each first call
        start = time.perf_counter()
        before = [t.detach().clone() for t in made.updated]
        expected = calls["eager"](), _changes(made.updated, before)
        slow = time.perf_counter() - start > 1  # perhaps the first call of a library
        if slow and (made.updated or _seconds(calls["eager"]) > 1):
            return {**row, "status": "skipped", "why": "a call takes more than a second"}
    except Exception as error:
        return {**row, "status": "skipped", "why": f"{type(error).__name__}: {error}"[:300]}
    first: dict[str, float] = {}
    found: Any = None
    for backend in ("inductor", "tcdebug"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        made = program.make() if made.updated else made
        calls[backend] = caller(made, torch.compile(made.function, backend=backend))
        try:
            torch.manual_seed(0)
            start = time.perf_counter()
            found = calls[backend]()
            first[backend] = time.perf_counter() - start
            found = found, _changes(made.updated, before)
        except Exception as error:
            status = "failed" if backend == "tcdebug" else "skipped"
            why = f"{backend}: {type(error).__name__}: {error}"
            return {**row, "status": status, "why": why[:300]}
    if why := difference(made, expected, found):
        row["why"] = why
    with turn:
        rounds = times(calls, device, seconds)
        memory = _memory(made, calls, device)
    against = {other: ratio(rounds["tcdebug"], rounds[other]) for other in ("inductor", "eager")}
    return {
        **row,
        "status": "measured",
        "over_inductor": against["inductor"].value,
        "over_eager": against["eager"].value,
        "noise": max(r.noise for r in against.values()),
        "seconds": min(rounds["tcdebug"]),
        "compile_seconds": first["tcdebug"],
        "compile_over": first["tcdebug"] / first["inductor"],
        "rounds": len(rounds["tcdebug"]),
        **memory,
    }


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _memory(made: Made, calls: dict[str, Any], device: str) -> dict[str, float]:
    """The peak memory of a call on a GPU over inductor's, with its inputs and beyond them."""
    if device != "cuda":
        return {}
    peaks: dict[str, int] = {}
    for name in ("inductor", "tcdebug"):
        gc.collect()  # tensors in cycles would be released during a call
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        calls[name]()
        torch.cuda.synchronize()
        peaks[name] = torch.cuda.max_memory_allocated() - before
    if not peaks["inductor"]:
        return {}
    own = tensors((made.inputs, dict(made.keywords), made.leaves, made.updated))
    given = sum({t.data_ptr(): t.untyped_storage().nbytes() for t in own}.values())
    return {
        "memory_over": (peaks["tcdebug"] + given) / (peaks["inductor"] + given),
        "beyond_inputs_over": peaks["tcdebug"] / peaks["inductor"],
    }


def _changes(updated: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a program added to the tensors that it updates."""
    return [t.detach() - start for t, start in zip(updated, before, strict=True)]


def work(chosen: argparse.Namespace) -> None:
    """Measure the programs whose names come on stdin, and print a row for each."""
    torch.set_num_threads(1)
    programs = catalogue(Place(chosen.device, chosen.scale))
    for line in sys.stdin:
        program, turn = programs[line.strip()], FileLock(chosen.turn)
        row = measured(program, chosen.device, chosen.each, turn)
        print("ROW " + json.dumps(row), flush=True)


class Worker:
    """A child process that measures programs."""

    def __init__(self, chosen: argparse.Namespace, turn: Path) -> None:
        environment = {"TCDEBUG_LOG": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
        environment |= {name: str(turn.parent / name) for name in CACHES}
        options = ["--device", chosen.device, "--scale", str(chosen.scale)]
        options += ["--each", str(chosen.each), "--turn", str(turn)]
        self.child = subprocess.Popen(
            [sys.executable, __file__, WORKER, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=chosen.results.with_suffix(".log").open("a"),
            text=True,
            env=environment,
        )
        self.programs = 0

    def row(self, name: str, limit: float) -> dict[str, Any]:
        """The row of a program; one that says so if the process ends or takes too long."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.programs += 1
        self.child.stdin.write(name + "\n")
        self.child.stdin.flush()
        selector = selectors.DefaultSelector()
        selector.register(self.child.stdout, selectors.EVENT_READ)
        end = time.monotonic() + limit
        while selector.select(max(0.0, end - time.monotonic())):
            line = self.child.stdout.readline()
            if not line:
                break
            if line.startswith("ROW "):
                found: dict[str, Any] = json.loads(line[4:])
                return found
        ended = self.child.poll() is not None or time.monotonic() < end
        self.close()
        family = name.partition("/")[0]
        why = f"exit status {self.child.returncode}" if ended else f"more than {limit:.0f} s"
        status = "died" if ended else "slow"
        return {"name": name, "family": family, "status": status, "why": why}

    @property
    def is_spent(self) -> bool:
        """Whether it is to be replaced."""
        return self.child.poll() is not None or self.programs >= PROGRAMS_OF_A_WORKER

    def close(self) -> None:
        """End the process."""
        self.child.kill()
        self.child.wait()


def sweep(names: list[str], chosen: argparse.Namespace) -> None:
    """Measure programs until the time is over, and append their rows to the results."""
    end = time.monotonic() + chosen.seconds
    waiting = iter(names)
    writing = threading.Lock()

    def measure_until_end(turn: Path) -> None:
        worker: Worker | None = None
        try:
            while time.monotonic() < end and (name := next(waiting, None)):
                if worker is None or worker.is_spent:
                    if worker is not None:
                        worker.close()
                    worker = Worker(chosen, turn)
                row = worker.row(name, chosen.limit)
                with writing, chosen.results.open("a") as results:
                    results.write(json.dumps(row) + "\n")
        finally:
            if worker is not None:
                worker.close()

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.workers) as threads:
        turn = Path(folder) / "turn"
        _build_shared(chosen, turn)
        list(threads.map(measure_until_end, [turn] * chosen.workers))


def _build_shared(chosen: argparse.Namespace, turn: Path) -> None:
    """Compile one program, so that no row pays for what the kernels of inductor share.

    On a CPU that is a precompiled header. Workers that all wait for it would exceed their limit.
    """
    worker = Worker(chosen, turn)
    worker.row(FIRST, chosen.seconds)
    worker.close()


def names_of(place: Place, pattern: str) -> list[str]:
    """The names that match, always in the same order: the families in turns, each one shuffled."""
    families: dict[str, list[str]] = {}
    for program in catalogue(place).values():
        if fnmatch.fnmatch(program.name, pattern):
            families.setdefault(program.family, []).append(program.name)
    for names in families.values():
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    return [name for turn in zip_longest(*families.values()) for name in turn if name]


def rows_of(results: Path) -> list[dict[str, Any]]:
    """The rows so far, one for each program."""
    lines = results.read_text().splitlines() if results.exists() else []
    return list({row["name"]: row for row in map(json.loads, lines)}.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--scale", type=int, help="the factor of batch sizes; default: 1, cuda 8")
    parser.add_argument("--seconds", type=float, default=540, help="how long this part runs")
    parser.add_argument("--only", default="*", help="a pattern of names, as in 'reductions/*'")
    parser.add_argument("--names", type=Path, help="a file of names, one a line: only these")
    parser.add_argument("--results", type=Path, help="default: sweep-DEVICE.jsonl")
    parser.add_argument("--each", type=float, default=1.0, help="seconds of timing per program")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a program may take")
    parser.add_argument("--workers", type=int, default=1, help="programs compiled side by side")
    parser.add_argument("--page", action="store_true", help="print the page, measure nothing")
    parser.add_argument("--list", action="store_true", help="print the names, measure nothing")
    parser.add_argument(WORKER, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.scale = chosen.scale or SCALES[chosen.device]
    chosen.results = chosen.results or Path(f"sweep-{chosen.device}.jsonl")
    if chosen.worker:
        work(chosen)
        return
    names = names_of(Place(chosen.device, chosen.scale), chosen.only)
    if chosen.names:
        named = set(chosen.names.read_text().split())
        names = [name for name in names if name in named]
    if chosen.list:
        print("\n".join(names))
        return
    if not chosen.page:
        done = {row["name"] for row in rows_of(chosen.results)}
        sweep([name for name in names if name not in done], chosen)
    rows = [row for row in rows_of(chosen.results) if row["name"] in set(names)]
    print(page(rows, len(names)))


if __name__ == "__main__":
    main()
