"""Every exit status of `tcdebug bisect` and `tcdebug minify` on an example that leads to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DOCUMENTED = Path(__file__).parents[2] / "docs" / "exit-statuses.md"
ROW = re.compile(r"^\| (\d+) \| (?:`(\w+)`)? *\|", re.MULTILINE)

Status = tuple[int, str]
"""The exit status, and `status` in the JSON report if there is a report."""

FAULTY_PASS = """
import tcdebug
import torch

@tcdebug.gated("negate")
def negate(graph):
    for node in list(graph.find_nodes(op="call_function", target=torch.sin)):
        node.target = torch.cos

def backend(module, inputs):
    negate(module.graph)
    module.recompile()
    return module.forward

torch.compile(lambda x: torch.sin(x) + 1, backend=backend)(torch.ones(2))
"""
ANOTHER_ERROR_IN_EAGER = """
import torch
from torch._dynamo.utils import counters

torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
raise ValueError("compiled") if counters["frames"] else KeyError("not compiled")
"""
FAULT_OF_TCDEBUG = """
import torch
from tcdebug.minifier.sessions.search import Session

def broken(*args):
    raise ZeroDivisionError("planted")

Session._judged = broken
torch.compile(torch.tanh, backend="eager")(torch.ones(3))
"""
NOT_CAPTURED_AGAIN = """
import torch
from torch.nn.attention.flex_attention import flex_attention

bias = torch.ones(16, requires_grad=True)
q = torch.ones(1, 1, 16, 16)
torch.compile(
    lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[i]),
    backend="eager",
)(q)
"""
OWN_PIPELINE = """
import tcdebug
import torch

@tcdebug.gated("slow")
def slow(graph: torch.fx.Graph) -> torch.fx.Graph:
    for node in list(graph.find_nodes(op="call_function", target=torch.sin)):
        node.target = lambda x: [torch.sin(x) for _ in range(1000)][0]
    return graph

module = torch.fx.symbolic_trace(lambda x: torch.sin(x) + 1)
slow(module.graph)
module.recompile()
module(torch.ones(2))
"""
HEALTHY = "import torch\ntorch.compile(torch.tanh, backend='eager')(torch.ones(3))\n"
WRONG_IN_EAGER = "import torch\ntorch.ones(2) @ torch.ones(3)\n"
ENDLESS = "open('begun', 'w').close()\nimport time\ntime.sleep(600)\n"


@dataclass(frozen=True)
class Example:
    """A script, and the arguments of the command beside it."""

    text: str
    arguments: tuple[str, ...] = ("bisect",)
    interrupted: bool = False
    """Whether SIGTERM is sent once the script writes the file `begun`. test_bisect sends SIGINT."""


EXAMPLES: Mapping[Status, Example] = {
    (0, "confirmed"): Example(FAULTY_PASS),
    (0, "minimized"): Example(FAULTY_PASS, ("minify",)),
    (1, "unconfirmed"): Example(ANOTHER_ERROR_IN_EAGER),
    (2, ""): Example(HEALTHY, ("bisect", "--off", "no.such.unit")),
    (3, ""): Example(FAULT_OF_TCDEBUG),
    (4, "no_failure"): Example(HEALTHY),
    (5, "fails_in_eager"): Example(WRONG_IN_EAGER),
    (7, "unjudged"): Example(NOT_CAPTURED_AGAIN),
    (6, "budget"): Example(FAULTY_PASS, ("bisect", "--reruns", "2")),
    (130, "interrupted"): Example(ENDLESS, interrupted=True),
}


def test_every_documented_status_has_an_example() -> None:
    section = DOCUMENTED.read_text().partition("## bisect, minify")[2].partition("\n## ")[0]
    assert {(int(code), status) for code, status in ROW.findall(section)} == {*EXAMPLES}


def examples() -> list[Any]:
    """The statuses that have an example. Tests in tests/toolkit reach the slow ones of 0 and 6."""
    slow = {(0, "confirmed"), (0, "minimized"), (1, "unconfirmed"), (6, "budget")}
    return [pytest.param(s, marks=[pytest.mark.slow] * (s in slow), id=str(s)) for s in EXAMPLES]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("status", examples())
def test_each_status_is_reached(status: Status, tmp_path: Path) -> None:
    reached(status, EXAMPLES[status], tmp_path)


PERF = ("bisect", "--oracle", "perf", "--seconds", "120")
UNJUDGED: Mapping[str, tuple[Example, tuple[str, ...]]] = {
    "only a pipeline of its own": (
        Example(OWN_PIPELINE, PERF),
        ("none could be judged", "user.slow", "the time that it takes"),
    ),
    "a healthy graph too": (  # its elements take longer than Dynamo
        Example(OWN_PIPELINE + HEALTHY.replace("ones(3)", "ones(1 << 20)"), PERF),
        ("user.slow", "the time that it takes"),
    ),
    "no compiled code": (
        Example("import torch\ntorch.ones(2) + 1\n", ("bisect", "--oracle", "nan")),
        ("none could be judged", "its results"),
    ),
}


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("name", UNJUDGED)
def test_what_an_oracle_of_graphs_did_not_judge_is_not_called_healthy(
    name: str, tmp_path: Path
) -> None:
    example, words = UNJUDGED[name]
    notes = reached((7, "unjudged"), example, tmp_path)["notes"]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def reached(status: Status, example: Example, tmp_path: Path) -> Any:
    """The report of the example, which must have this status."""
    (tmp_path / "script.py").write_text(example.text)
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    command = [sys.executable, "-m", "tcdebug", *example.arguments, "--json", "script.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**plain, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if example.interrupted:
        deadline = time.monotonic() + 200
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=250)
    report = json.loads(output) if status[1] else {"status": ""}
    assert (process.returncode, report["status"]) == status, errors
    return report
