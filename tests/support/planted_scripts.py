"""Beginnings of scripts and test files that plant a fault in the embedded compiler."""

from __future__ import annotations

WRONG_SIN = """
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
REGISTRY.lowerings[torch.ops.aten.sin.default] = lambda site, x: right(site, right(site, x))
"""
"""The sine is taken twice."""

WRONG_SIN_FIXTURE = """
import pytest
import torch
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY


@pytest.fixture
def planted(monkeypatch):
    right = LOWERINGS[torch.ops.aten.sin.default]
    wrong = lambda site, x: right(site, right(site, x))
    monkeypatch.setitem(REGISTRY.lowerings, torch.ops.aten.sin.default, wrong)


def test_healthy():
    torch.compile(torch.cos, backend="tcdebug")(torch.ones(3))
"""
"""The same in a fixture `planted` of a test file, which has a healthy test."""

PARALLEL_NET = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.sin(self.up(x)))

plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
"""
"""A module of two products and a sine, and how two ranks split it."""
