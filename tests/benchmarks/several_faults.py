"""Compares tcdebug and torch's bisector on several faults in one script.

    python tests/benchmarks/several_faults.py
    python tests/benchmarks/several_faults.py --backends inductor --kinds two --only-ours

`two` and `three` are independent faults in as many subsystems. `pair` is one fault that needs two
units. Each repro runs alone, 3 times unchanged and 3 times with the culprit off.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from inductor_bugs import measured

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality" / "support"))

from repros_alone import alone
from several_scripts import COMPILERS, PLANTS, expected, found, script

SECONDS = 900
"""Time limit for torch's bisector, in seconds."""


def ours(folder: Path, wanted: list[list[str]]) -> str:
    """The cells of `tcdebug bisect`."""
    command = [sys.executable, "-m", "tcdebug", "bisect", "--json", "-q", "script.py"]
    run = measured("tcdebug", command, folder, {"OMP_NUM_THREADS": "1"})
    start = run.output.find('{"status"')
    if start < 0:
        return f"no report: {run.output[-300:]}"
    report = json.loads(run.output[start:].splitlines()[0])
    units = found(report)
    right = sum(fault in wanted for fault in units)
    nodes = "+".join(str(f["nodes"]) for f in report["faults"])
    repros = "; ".join(alone(f).text() for f in report["faults"] if f["repro"])
    named = "" if units == wanted else f"  named {units}"
    return (
        f"{right}/{len(wanted)}  {report['reruns']:4} {run.cpu_seconds:7.1f}"
        f"  {report['nodes_before']} -> {nodes}  {report['status']}  {repros}{named}"
    )


def torchs(folder: Path, wanted: list[list[str]]) -> str:
    """The cells of torch's bisector, whose answer is shown unchanged."""
    bisector = ["-m", "torch._inductor.compiler_bisector", "run", sys.executable, "script.py"]
    run = measured(
        "bisector",
        ["timeout", str(SECONDS), sys.executable, *bisector],
        folder,
        {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"},
    )
    asks = len(re.findall(r"^ASKED$", run.output, re.MULTILINE))
    result = re.findall(r"^Bisection complete: (.*)", run.output, re.MULTILINE)
    last = result[-1] if result else f"no answer in {run.seconds:.0f} s"
    return f"?/{len(wanted)}  {asks:4} {run.cpu_seconds:7.1f}  {last[:160]}"


def main() -> None:
    """Print a row for each script and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default=",".join(COMPILERS))
    parser.add_argument("--kinds", default=",".join(PLANTS))
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    print(f"{'backend':9} {'faults':6} {'':8} found asks   CPU-s  nodes")
    for backend in args.backends.split(","):
        for kind in args.kinds.split(","):
            wanted = expected(backend, kind)
            tools = {"tcdebug": ours}
            if backend == "inductor" and not args.only_ours:
                tools["torch"] = torchs
            for name, tool in tools.items():
                with tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "script.py").write_text(script(backend, kind))
                    cells = tool(Path(folder), wanted)
                print(f"{backend:9} {kind:6} {name:8} {cells}", flush=True)


if __name__ == "__main__":
    main()
