"""`tcdebug fuzz run --engine ray` on two nodes of one machine, one of which is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PLANTED = """
import torch
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY

def broken(site, *args, **kwargs):
    raise ValueError("planted")

for op in torch.ops.aten.sum.default, torch.ops.aten.sum.dim_IntList:
    REGISTRY.lowerings[op] = broken
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes, each with its own processes."""
    utilities = pytest.importorskip("ray.cluster_utils")
    made = utilities.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        yield made
    finally:
        made.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lost_node_loses_no_finding_and_its_programs_are_drawn_again(
    cluster: Any, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    node = cluster.add_node(num_cpus=1)
    (tmp_path / "planted.py").write_text(PLANTED)
    command = [
        sys.executable, "-m", "tcdebug", "fuzz", "run", "--engine=ray", "-j1", "--examples=60",
        "--seed=0", "--no-bisect", "--setup=planted.py", "--json", "-q",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**environment, "RAY_ADDRESS": cluster.address},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    _wait_for(tmp_path, f".tcdebug/*-fuzz-run/events-{node.node_id[:8]}.jsonl")
    cluster.remove_node(node, allow_graceful=False)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 1, output
    told = json.loads(output)
    assert told["examples"] >= 60, "what the lost node was asked for was drawn by the other one"
    kept = [json.loads(p.read_text()) for p in tmp_path.glob(".tcdebug/findings/*/finding.json")]
    assert ["sum"] in [f["ops"] for f in kept], [f["signature"] for f in kept]
    events = b"".join(p.read_bytes() for p in tmp_path.glob(".tcdebug/*-fuzz-run/events*.jsonl"))
    assert f"node {node.node_id[:8]} is lost".encode() in events


def _wait_for(folder: Path, pattern: str) -> None:
    """Wait until a file exists that is not empty."""
    end = time.monotonic() + 300
    while not any(os.path.getsize(p) for p in folder.glob(pattern)):
        assert time.monotonic() < end
        time.sleep(0.2)
