"""Compares the embedded compiler with inductor and eager on a CPU: time, memory, compile cost.

    python tests/benchmarks/cpu.py [--only softmax,mlp] [--no-compile] [--no-run]

Run time: CPU time of one thread, the three interleaved in one process, the minimum of 30 rounds.
Peak memory: the increase of the process's resident memory by a call, the minimum of 3 (Linux).
Compile cost: CPU-seconds of a first call with its child processes, in a fresh process that has used
Dynamo before. `cold` has fresh caches and a fresh TMPDIR (where inductor keeps its precompiled
header). `warm` runs again with the caches of `cold`. Ratios of run times are those of the others
over tcdebug: above 1, tcdebug is faster, or takes less.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

BACKENDS = ("inductor", "tcdebug")
ROUNDS = 30
LIBC = ctypes.CDLL(None)
Workload = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def _training() -> Workload:
    model = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(model(x), y)

    return step, (torch.randn(256, 256), torch.randn(256, 256))


def _frozen(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).eval().requires_grad_(False)


def _images() -> nn.Module:
    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

    return _frozen(*block(3, 32), nn.MaxPool2d(2), *block(32, 64), nn.AvgPool2d(2), *block(64, 64))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
    return _frozen(layer)


def _embedding() -> Workload:
    table = nn.Embedding(10_000, 128)

    def step(places: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = table(places)
        return rows.square().mean()

    return step, (torch.randint(0, 10_000, (32, 128)),)


def _append(cache: torch.Tensor, key: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[:, place] = key
    return cache @ key.transpose(1, 2)


def _optimizer(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
    parameters = [nn.Parameter(torch.randn(n, 512)) for n in (2048, 512, 512, 1)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return kind(parameters, lr=1e-3, **options)


RANDN = torch.randn
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "tiny": lambda: (lambda x, y: (x + y).relu() * 2, (RANDN(8), RANDN(8))),
    "pointwise": lambda: (lambda x, y: (x - y).sigmoid() * y, (RANDN(1 << 21), RANDN(1 << 21))),
    "softmax": lambda: (lambda x: x.softmax(-1), (RANDN(4096, 768),)),
    "rms_norm": lambda: (
        lambda x, w: x * torch.rsqrt(x.square().mean(-1, True) + 1e-6) * w,
        (RANDN(4096, 768), RANDN(768)),
    ),
    "layer_norm_gelu": lambda: (_frozen(nn.LayerNorm(768), nn.GELU()), (RANDN(4096, 768),)),
    "layer_norm_gelu_bf16": lambda: (
        _frozen(nn.LayerNorm(768), nn.GELU()).bfloat16(),
        (RANDN(4096, 768).bfloat16(),),
    ),
    "sum_of_rows": lambda: (lambda x: x.abs().sum(-1), (RANDN(2048, 4096),)),
    "sum_of_columns": lambda: (lambda x: x.abs().sum(0), (RANDN(2048, 4096),)),
    "sum_of_all": lambda: (lambda x: x.abs().sum(), (RANDN(2048, 4096),)),
    "transposed": lambda: (lambda x, y: x + y.t().exp(), (RANDN(1024, 2048), RANDN(2048, 1024))),
    "gather": lambda: (
        lambda table, places: table[places] * 2,
        (RANDN(50_000, 128), torch.randint(0, 50_000, (8192,))),
    ),
    "mlp": lambda: (
        _frozen(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)),
        (RANDN(256, 512),),
    ),
    "encoder": lambda: (_encoder(), (RANDN(4, 128, 256),)),
    "images": lambda: (_images(), (RANDN(8, 3, 64, 64),)),
    "training": _training,
    "embedding": _embedding,
    "index_add": lambda: (
        lambda x, places, rows: x.index_add(0, places, rows * 2),
        (RANDN(4096, 128), torch.randint(0, 4096, (16384,)), RANDN(16384, 128)),
    ),
    "kv_cache": lambda: (_append, (RANDN(8, 1024, 64), RANDN(8, 1, 64), torch.tensor([5]))),
    "batch_norm": lambda: (nn.BatchNorm2d(64).requires_grad_(False), (RANDN(8, 64, 56, 56),)),
    "sgd": lambda: (_optimizer(torch.optim.SGD, momentum=0.9).step, ()),
    "adam": lambda: (_optimizer(torch.optim.Adam).step, ()),
}  # fmt: skip


def call(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Any:
    """One call, with backward if the inputs require gradients."""
    result = function(*inputs)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.backward()  # type: ignore[no-untyped-call] # torch has no annotation
    return result


def peak_memory(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> int:
    """Bytes by which a call raises the peak of resident memory."""
    least = 1 << 62
    for _ in range(3):
        gc.collect()
        LIBC.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _resident("VmRSS")
        call(function, inputs)
        least = min(least, _resident("VmHWM") - before)
    return least


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(field)]
    return int(line.split()[1]) << 10


def run_times(name: str) -> dict[str, list[float]]:
    """Seconds and peak bytes of a call, for eager and each backend."""
    torch.set_num_threads(1)
    function, inputs = WORKLOADS[name]()
    several = {"eager": function}
    for backend in BACKENDS:
        torch._dynamo.reset()
        several[backend] = torch.compile(function, backend=backend)
        for _ in range(3):
            call(several[backend], inputs)
    repeats = 2000 if name == "tiny" else 1
    best = dict.fromkeys(several, math.inf)
    for _ in range(ROUNDS):
        for who, one in several.items():
            start = time.thread_time()
            for _ in range(repeats):
                call(one, inputs)
            best[who] = min(best[who], (time.thread_time() - start) / repeats)
    return {who: [best[who], peak_memory(one, inputs)] for who, one in several.items()}


def compile_cost(name: str, backend: str) -> float:
    """CPU-seconds of the first compiled call, in a process that has used Dynamo before."""
    function, inputs = WORKLOADS[name]()
    call(function, inputs)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # both need Dynamo itself

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    start = used()
    call(torch.compile(function, backend=backend), inputs)
    return used() - start


def in_process(environment: Mapping[str, str], *arguments: str) -> Any:
    """The JSON that this file prints when it runs with these arguments."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "TCDEBUG_LOG": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compiled_costs(name: str) -> dict[str, list[float]]:
    """CPU-seconds of a cold and a warm compile, by backend."""
    found: dict[str, list[float]] = {}
    for backend in BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            fresh = {
                "TMPDIR": folder,
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
                "TCDEBUG_CACHE_DIR": f"{folder}/tcdebug",
            }
            costs = [in_process(fresh, "--compile-one", name, backend) for _ in range(2)]
        found[backend] = costs
    return found


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_run_times(names: list[str]) -> None:
    print(
        f"{'run time, ms':20} {'eager':>9} {'inductor':>9} {'tcdebug':>9}  over inductor, eager"
        f"  {'peak, MiB':>10} {'inductor':>9} {'tcdebug':>9}"
    )
    ratios: list[tuple[float, float]] = []
    for name in names:
        found = in_process({}, "--run-one", name)
        times = {who: found[who][0] for who in found}
        ratio = times["inductor"] / times["tcdebug"], times["eager"] / times["tcdebug"]
        if name != "tiny":
            ratios.append(ratio)
        cells = " ".join(f"{times[who] * 1e3:9.3f}" for who in ("eager", *BACKENDS))
        peaks = " ".join(f"{found[who][1] / 2**20:9.1f}" for who in ("eager", *BACKENDS))
        print(f"{name:20} {cells}  {ratio[0]:13.2f} {ratio[1]:.2f}   {peaks}", flush=True)
    if ratios:
        means = [geometric_mean([r[k] for r in ratios]) for k in (0, 1)]
        print(
            f"geometric mean without tiny: {means[0]:.2f} over inductor, {means[1]:.2f} over eager"
        )


def print_compile_costs(names: list[str]) -> None:
    print(f"\n{'compile, CPU-s':22}   cold: inductor tcdebug   warm: inductor tcdebug")
    ratios: list[list[float]] = [[], []]
    for name in names:
        costs = compiled_costs(name)
        for phase in (0, 1):
            ratios[phase].append(costs["tcdebug"][phase] / costs["inductor"][phase])
        cold, warm = ((costs["inductor"][k], costs["tcdebug"][k]) for k in (0, 1))
        print(
            f"{name:22} {cold[0]:16.2f} {cold[1]:7.2f} {warm[0]:16.2f} {warm[1]:7.2f}", flush=True
        )
    cold_mean, warm_mean = map(geometric_mean, ratios)
    print(f"geometric mean, tcdebug over inductor: cold {cold_mean:.3f}, warm {warm_mean:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--run-one", help=argparse.SUPPRESS)
    parser.add_argument("--compile-one", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    if chosen.run_one:
        print(json.dumps(run_times(chosen.run_one)))
        return
    if chosen.compile_one:
        print(json.dumps(compile_cost(*chosen.compile_one)))
        return
    names = chosen.only.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"no workload {unknown[0]!r}: there is {', '.join(WORKLOADS)}")
    if not chosen.no_run:
        print_run_times(names)
    if not chosen.no_compile:
        print_compile_costs(names)


if __name__ == "__main__":
    main()
