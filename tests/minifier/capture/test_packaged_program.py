"""Exported programs as graphs of their weights and inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tcdebug.minifier.capture.packages.packaged_program import program_of

ONES = torch.ones(2, 3)


class Counting(nn.Module):
    """Counts rows in a buffer."""

    def __init__(self, *, updates: bool) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(3))
        self.updates = updates

    def forward(self, x: Tensor) -> Any:
        """The rows so far."""
        rows = self.get_buffer("rows")
        return rows.add_(x.sum(0)) * 1 if self.updates else rows + x.clone().add_(1)


def test_a_program_updates_its_buffers_before_and_after_functionalisation() -> None:
    program = torch.export.export(Counting(updates=True), (ONES,))
    assert program_of(program).updates
    assert program_of(program.run_decompositions({})).updates
    assert not program_of(torch.export.export(Counting(updates=False), (ONES,))).updates


class Nested(nn.Module):
    """Takes and returns nested values."""

    def forward(self, batch: dict[str, Tensor], *, scale: Tensor) -> dict[str, Any]:
        """The batch, scaled."""
        return {"x": batch["x"] * scale, "both": (batch["y"], scale + 1)}


def test_a_package_is_called_with_the_inputs_of_its_graph() -> None:
    module, scale = Nested(), torch.tensor(2.0)
    batch = {"x": ONES, "y": ONES + 1}
    program = program_of(torch.export.export(module, (batch,), {"scale": scale}))
    inputs = program.leaves_of((batch,), {"scale": scale})
    assert inputs is not None
    call, _ = program.as_graph(module)
    assert [value.flatten()[0].item() for value in call(*inputs)] == [2.0, 2.0, 3.0]
    assert program.leaves_of((ONES,), {"scale": scale}) is None
