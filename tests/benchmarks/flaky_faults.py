"""Compares this bisector and torch's on faults that occur only sometimes.

    python tests/benchmarks/flaky_faults.py simulated --times 1000
    python tests/benchmarks/flaky_faults.py script --rates 0.9,0.7 --times 10

`simulated`: both search the same 67 simulated decisions, with a random outcome for each run. A
bisector that names anything except the culprit is wrong. One that names nothing, or gives up, is
not.

`script`: a graph whose lowering of relu is wrong in some of the processes that compile it. torch's
bisector runs without caches of graphs, which would keep the first outcome.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inductor_bugs import measured
from torch._inductor.compiler_bisector import BisectionResult, CompilerBisector

sys.path.insert(0, str(Path(__file__).parents[1] / "minifier" / "support"))

from flaky_compiles import ONE_STEP, STEPS, Flaky, answer

SUBSYSTEMS = {"passes": "post_grad_passes", "lower": "lowerings"}
"""torch's bisector has these names for our families, and none for fusions."""

SCRIPT = """
import os, sys, torch
print("ASKED", flush=True)
from torch._inductor import lowering
aten = torch.ops.aten
relu, coins = lowering.lowerings[aten.relu.default], {{}}
def sometimes(x):
    pid = os.getpid()
    if pid not in coins:
        coins[pid] = int.from_bytes(os.urandom(4), "little") < {rate} * 2**32
    return lowering.lowerings[aten.abs.default](x) if coins[pid] else relu(x)
lowering.register_lowering(aten.relu.default, type_promotion_kind=None)(sometimes)
torch.manual_seed(0)
def f(x, w):
    y = torch.softmax(torch.tanh(x @ w) * 2 - x.mean(-1, keepdim=True), -1)
    return torch.sigmoid(torch.relu(y - 0.1)) + x
x, w = torch.randn(8, 8), torch.randn(8, 8)
got = torch.compile(f, backend=os.environ.get("TORCH_COMPILE_BACKEND") or "inductor")(x, w)
sys.exit(0 if torch.allclose(got, f(x, w), rtol=1e-3, atol=1e-3) else 1)
"""


@dataclass(frozen=True)
class Trial:
    """The number of questions of a bisector, and whether it was right, wrong, or named nothing."""

    asks: int
    answer: str
    cpu_seconds: float = 0.0


def ours(rate: float, seed: int, wanted: float) -> Trial:
    """This bisector, after the failure was seen."""
    flaky = Flaky(rate, seed)
    found = answer(flaky.bisected(wanted))
    return Trial(flaky.runs, found)


def torchs(rate: float, seed: int) -> Trial:
    """torch's bisector. It starts with the smallest of its backends, which does not fail."""
    coin, asks = random.Random(seed), 0

    def passes() -> bool:
        nonlocal asks
        asks += 1
        if CompilerBisector.get_backend() != "inductor":
            return True
        taken = [step for step in STEPS if _taken(*step)]
        return not (ONE_STEP[0] in taken and coin.random() < rate)

    with contextlib.redirect_stdout(io.StringIO()):
        try:
            result = CompilerBisector.do_bisect(passes)
        except RuntimeError:  # what failed before no longer fails
            result = None
    return Trial(asks, _judged(result))


def _taken(unit: str, subject: str) -> bool:
    subsystem = SUBSYSTEMS.get(unit.partition(".")[0])
    if subsystem is None:
        return True
    return not CompilerBisector.disable_subsystem("inductor", subsystem, lambda: subject)


def _judged(result: BisectionResult | None) -> str:
    if result is None or result.subsystem is None:
        return "none"
    number = int(ONE_STEP[0][1].removeprefix("n"))
    right = (result.subsystem, result.bisect_number) == ("lowerings", number)
    return "right" if right else "wrong"


def our_command(folder: Path) -> Trial:
    """`tcdebug bisect` on the script."""
    command = [sys.executable, "-m", "tcdebug", "bisect", "--json", "-q", "script.py"]
    run = measured("tcdebug", command, folder, {})
    report = json.loads(run.output[run.output.index("{") :].splitlines()[0])
    units = [c["unit"] for c in report["culprits"]]
    if not report["confirmed"]:
        why = f"{report['status']} {units} {report['notes']}"
        print(f"    unnamed: {why}", file=sys.stderr)
        return Trial(report["reruns"], "none", run.cpu_seconds)
    right = units == ["lower.aten.relu.default"]
    return Trial(report["reruns"], "right" if right else "wrong", run.cpu_seconds)


def torch_command(folder: Path) -> Trial:
    """torch's bisector on the script."""
    run = measured(
        "torch",
        [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", sys.executable,
         "script.py"],
        folder,
        {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"},
    )  # fmt: skip
    result = re.findall(r"^Bisection complete: (.*)", run.output, re.MULTILINE)
    found = result[-1] if result else ""
    named = "subsystem=" in found and "subsystem=None" not in found
    right = "subsystem='lowerings'" in found and "relu" in found
    asks = len(re.findall(r"^ASKED$", run.output, re.MULTILINE))
    return Trial(asks, "right" if right else "wrong" if named else "none", run.cpu_seconds)


def show(rate: float, tool: str, trials: list[Trial]) -> None:
    """Print a row of the table."""
    answers = Counter(trial.answer for trial in trials)
    asks = sum(trial.asks for trial in trials) / len(trials)
    seconds = sum(trial.cpu_seconds for trial in trials) / len(trials)
    cells = "".join(f"{answers[a]:7}" for a in ("right", "none", "wrong"))
    cost = f"{seconds:8.1f}" if seconds else ""
    print(f"{rate:5} {tool:16} {cells} {asks:7.1f} {cost}".rstrip(), flush=True)


def simulated(rates: list[float], times: int, only_ours: bool) -> None:
    """Print the table of the searches alone."""
    tools: dict[str, Callable[[float, int], Trial]] = {
        "tcdebug 0.99": lambda rate, seed: ours(rate, seed, 0.99),
        "tcdebug 0.999": lambda rate, seed: ours(rate, seed, 0.999),
    }
    if not only_ours:
        tools["torch"] = torchs
    for rate in rates:
        for tool, once in tools.items():
            show(rate, tool, [once(rate, seed) for seed in range(times)])


def scripts(rates: list[float], times: int, only_ours: bool) -> None:
    """Print the table of whole commands."""
    tools = {"tcdebug": our_command}
    if not only_ours:
        tools["torch"] = torch_command
    for rate in rates:
        for tool, once in tools.items():
            trials = []
            for _ in range(times):
                with tempfile.TemporaryDirectory() as name:
                    (Path(name) / "script.py").write_text(SCRIPT.format(rate=rate))
                    trials.append(once(Path(name)))
            show(rate, tool, trials)


def main() -> None:
    """Print a row for each rate and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulated", "script"))
    parser.add_argument("--rates", default="0.95,0.9,0.8,0.7")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    print(f"{'rate':5} {'':16}   right   none  wrong    asks    CPU-s")
    rates = [float(rate) for rate in args.rates.split(",")]
    with tempfile.TemporaryDirectory() as caches:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches  # where torch's bisector keeps its state
        table = simulated if args.what == "simulated" else scripts
        table(rates, args.times, args.only_ours)


if __name__ == "__main__":
    main()
