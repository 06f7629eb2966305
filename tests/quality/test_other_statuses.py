"""Every exit status of `tcdebug run`, `explain` and `values` on an example that leads to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from planted_scripts import WRONG_SIN

DOCUMENTED = Path(__file__).parents[2] / "docs" / "exit-statuses.md"
ROW = re.compile(r"^\| ([^|]+?) \|", re.MULTILINE)

HEALTHY = "import torch\ntorch.compile(torch.tanh, backend='eager')(torch.ones(3))\n"
CAUGHT = """
import contextlib
import torch

def broken(module, inputs):
    raise ValueError("planted")

with contextlib.suppress(Exception):
    torch.compile(torch.tanh, backend=broken)(torch.ones(3))
"""
RAISES = HEALTHY + "raise ValueError('planted')\n"
NOTHING_COMPILED = "import torch\ntorch.ones(3).tanh()\n"
ENDED_BY_SIGNAL = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
ENDLESS = "open('begun', 'w').close()\nimport time\ntime.sleep(600)\n"
FAULT_OF_TCDEBUG = """
from tcdebug.minifier.sessions.execution import Broken
raise Broken
"""
RIGHT_VALUES = """
import torch
torch.compile(torch.tanh, backend="tcdebug")(torch.ones(3))
"""
WRONG_VALUES = (
    f"import torch{WRONG_SIN}"
    + """
torch.compile(lambda x: x.sin().sum(), backend="tcdebug")(torch.ones(3))
"""
)

Example = tuple[str, tuple[str, ...]]
"""A script, and the options of the command."""

EXAMPLES: Mapping[str, Mapping[str, Example]] = {
    "run": {
        "that of the script": ("raise SystemExit(7)\n", ()),
        "1": (CAUGHT, ()),
        "2": (HEALTHY, ("--off", "no.such.unit")),
        "3": (HEALTHY, ()),
        "4": (NOTHING_COMPILED, ("--profile",)),
        "128 + n": (ENDED_BY_SIGNAL, ()),
        "130": (ENDLESS, ()),
    },
    "values": {
        "0": (WRONG_VALUES, ()),
        "1": (RAISES, ()),
        "2": (HEALTHY, ("--off", "no.such.unit")),
        "3": (FAULT_OF_TCDEBUG, ()),
        "4": (RIGHT_VALUES, ()),
        "130": (ENDLESS, ()),
    },
    "explain": {
        "0": (HEALTHY, ()),
        "1": (RAISES, ()),
        "2": (HEALTHY, ("--no-such-option",)),
        "3": (HEALTHY, ()),
        "4": (NOTHING_COMPILED, ()),
        "130": (ENDLESS, ()),
    },
}
"""Command -> status, as documented -> an example."""
EXPECTED = {"that of the script": 7, "128 + n": 128 + signal.SIGTERM}
NO_SESSION = """
import os, sys
if "tcdebug.minifier.sessions.session" in sys.orig_argv:
    os._exit(9)
"""
"""A `sitecustomize` that ends each session before its script."""
WITHOUT_SESSION = {("run", "3"), ("explain", "3")}
CHEAP = {("run", "2"), ("explain", "2"), ("values", "2"), ("run", "that of the script")}


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_documented_status_has_an_example(command: str) -> None:
    section = DOCUMENTED.read_text().partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    documented = set(ROW.findall(section)) - {"exit", "---"}
    assert documented == set(EXAMPLES[command])


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        pytest.param(c, s, marks=[] if (c, s) in CHEAP else pytest.mark.slow, id=f"{c}-{s}")
        for c, found in EXAMPLES.items()
        for s in found
        if (c, s) not in WITHOUT_SESSION
    ],
)
def test_each_status_is_reached(command: str, status: str, tmp_path: Path) -> None:
    text, options = EXAMPLES[command][status]
    (tmp_path / "script.py").write_text(text)
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tcdebug", command, *options, "script.py"],
        cwd=tmp_path, env={**plain, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if status == "130":
        deadline = time.monotonic() + 200
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=250)
    expected = EXPECTED[status] if status in EXPECTED else int(status)
    assert process.returncode == expected, errors


@pytest.mark.parametrize("command", sorted(command for command, _ in WITHOUT_SESSION))
def test_a_session_that_does_not_start_is_an_internal_error(command: str, tmp_path: Path) -> None:
    text, options = EXAMPLES[command]["3"]
    (tmp_path / "script.py").write_text(text)
    (tmp_path / "sitecustomize.py").write_text(NO_SESSION)
    done = subprocess.run(
        [sys.executable, "-m", "tcdebug", command, *options, "script.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
