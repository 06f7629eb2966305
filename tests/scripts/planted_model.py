"""A typical script with one planted bug: UNIT KIND BLOCKS."""

import importlib.util
import sys
from pathlib import Path

import torch
from torch import nn

spec = importlib.util.spec_from_file_location(
    "planted", Path(__file__).resolve().parents[1] / "planted.py"
)
planted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planted)


class Block(nn.Module):
    def __init__(self, width, active):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.active = active
        self.register_buffer("seen", torch.zeros(2 * width))

    def forward(self, x):
        y = nn.functional.gelu(self.up(self.norm(x)))
        if self.active:
            y = torch.tanh(y) - torch.tanh(y * 0.5).mean(-1, keepdim=True)
            y = y + torch.tanh(y.detach() * 0.3)  # not saved for backward, so that it is inlined
            self.seen.add_(torch.tanh(y.detach()[0]))  # in place
            y = y.index_put((torch.tensor([1, 1]),), torch.tanh(y[:2]), accumulate=True)
        y = torch.softmax(self.down(y), -1) * torch.sigmoid(x)
        return x + y * 0.5


def main(unit, kind, blocks):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(16, k == blocks // 2) for k in range(blocks)))
    planted.PLANTS[unit](kind)
    compiled = torch.compile(model, backend="tcdebug")
    x = torch.randn(4, 16)
    compiled(x).square().mean().backward()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
