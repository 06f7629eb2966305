"""Compares torch's bisector and minifier with tcdebug on bugs that torch plants in inductor.

    python tests/benchmarks/inductor_bugs.py bisect               a function of 4 operators
    python tests/benchmarks/inductor_bugs.py minify --blocks 6    a graph of 125 operators and more

Each tool runs on the same script, one after the other, with its own cache folders, which are
deleted before. A bisector then runs again with its caches, like a user's second bisection.
CPU-seconds include all processes that a tool starts.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BUGS = ("compile_error", "runtime_error", "accuracy")

HEAD = """
import os, sys, torch
import torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = {bug!r}
torch.manual_seed(0)
backend = os.environ.get("TORCH_COMPILE_BACKEND") or "inductor"
"""
FOUR = """
def f(x):
    return (torch.relu(x.sin()) * 2).sum(-1)
x = torch.randn(16, 16)
"""
BLOCKS = """
weights = [torch.randn(16, 16) / 4 for _ in range({blocks})]
def f(x):
    for k, w in enumerate(weights):
        y = torch.sigmoid(x @ w + x)
        z = torch.tanh(y - y.mean(-1, keepdim=True))
        if k == {blocks} // 2:
            z = torch.relu(z)
        p = torch.softmax(z, -1)
        c = torch.cat([p, z.cos()], -1).view(16, 2, 16)
        x = c[:, 0] * 2 + c[:, 1].exp()
    return x
x = torch.randn(16, 16)
"""
TAIL = """
got = torch.compile(f, backend=backend)(x)
sys.exit(0 if torch.allclose(got, f(x), rtol=1e-3, atol=1e-3) else 1)
"""


@dataclass(frozen=True)
class Measured:
    """The cost and the output of a tool."""

    seconds: float
    cpu_seconds: float
    output: str


def measured(
    tool: str,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    again: bool = False,
) -> Measured:
    """Run a tool in a folder with its own caches. `again` keeps their contents."""
    caches = folder / "caches" / tool
    if not again:
        shutil.rmtree(caches, ignore_errors=True)
    temporary = caches / "tmp"  # of precompiled headers
    temporary.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TCDEBUG_CACHE_DIR": str(caches / "tcdebug"),
        **environment,
    }
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(time.monotonic() - start, cpu, done.stdout + done.stderr)


def ours(command: str, script: Path, *, again: bool = False) -> tuple[Measured, str]:
    """tcdebug on the script: its cost and its result."""
    folder = script.parent
    arguments = [command, "--json", "-q", "-j", "1", script.name]
    run = measured(
        "tcdebug", [sys.executable, "-m", "tcdebug", *arguments], folder, {}, again=again
    )
    report = json.loads(run.output[run.output.index("{") :].splitlines()[0])
    units = ", ".join(c["unit"] for c in report["culprits"])
    found = f"{report['reruns']} asks, {report['nodes_after']} ops, {units} {report['status']}"
    return run, found


def torch_bisector(script: Path, *, again: bool = False) -> tuple[Measured, str]:
    """torch._inductor.compiler_bisector on the script."""
    command = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run"]
    command += [sys.executable, script.name]
    run = measured("bisector", command, script.parent, {}, again=again)
    result = re.findall(r"Bisection complete: (.*)", run.output)
    return run, result[-1][:150] if result else "nothing"


def torch_minifier(script: Path, isolate: bool) -> tuple[Measured, str]:
    """The minifier that torch writes when the script fails, unchanged or without isolation."""
    folder = script.parent
    level = "4" if "accuracy" in script.name else "2"
    env = {
        "TORCHDYNAMO_REPRO_AFTER": "aot",
        "TORCHDYNAMO_REPRO_LEVEL": level,
        "TORCH_COMPILE_DEBUG_DIR": str(folder / "torch_debug"),
    }
    victim = measured("script", [sys.executable, script.name], folder, env)
    launchers = sorted((folder / "torch_debug").rglob("minifier_launcher.py"))
    if not launchers:
        return victim, "no launcher"
    command = [sys.executable, str(launchers[-1]), "minify"]
    command += [] if isolate else ["--no-isolate"]
    run = measured("minifier", command, folder, {})
    asks = len(re.findall(r"SUCCESS|FAIL", run.output))
    nodes = re.findall(r"(?:with|left with|reduced) (\d+) nodes|\((\d+) nodes\)", run.output)
    total = Measured(victim.seconds + run.seconds, victim.cpu_seconds + run.cpu_seconds, run.output)
    return total, f"about {asks} asks, ends {nodes[-1:]}"


def main() -> None:
    """Run the requested tools and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("bisect", "minify"))
    parser.add_argument("--bugs", default=",".join(BUGS))
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--no-isolate", action="store_true", help="torch's minifier in process")
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    for bug in args.bugs.split(","):
        body = FOUR if args.what == "bisect" else BLOCKS.format(blocks=args.blocks)
        with tempfile.TemporaryDirectory() as name:
            script = Path(name) / f"{bug}.py"
            script.write_text(HEAD.format(bug=bug) + body + TAIL)
            for again in (False, True) if args.what == "bisect" else (False,):
                rows = [("tcdebug", *ours(args.what, script, again=again))]
                if not args.only_ours and args.what == "bisect":
                    rows.append(("torch", *torch_bisector(script, again=again)))
                elif not args.only_ours:
                    rows.append(("torch", *torch_minifier(script, not args.no_isolate)))
                show(f"{bug} again" if again else bug, rows)


def show(name: str, rows: Sequence[tuple[str, Measured, str]]) -> None:
    """Print a line per tool, and the ratio of the second tool's CPU-seconds to the first's."""
    for tool, run, found in rows:
        cost = f"{run.cpu_seconds:7.1f} CPU-s {run.seconds:7.1f} s"
        print(f"{name:20} {tool:8} {cost}  {found}", flush=True)
    if len(rows) == 2:
        print(f"{name:20} ratio    {rows[1][1].cpu_seconds / rows[0][1].cpu_seconds:7.1f}")


if __name__ == "__main__":
    main()
