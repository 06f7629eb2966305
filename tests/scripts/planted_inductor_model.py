"""A typical script, compiled by inductor, with one planted bug: UNIT KIND BLOCKS."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import planted_inductor


class Block(nn.Module):
    def __init__(self, width, active):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.active = active

    def forward(self, x):
        y = nn.functional.gelu(self.up(self.norm(x)))
        if self.active:
            y = nn.functional.softplus(y)
            y = y * torch.relu(torch.tanh(y) - 0.1).sum(-1, keepdim=True)
        y = torch.softmax(self.down(y), -1) * torch.sigmoid(x)
        return x + y * 0.5


def main(unit, kind, blocks):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(16, k == blocks // 2) for k in range(blocks)))
    planted_inductor.PLANTS[unit](kind)
    compiled = torch.compile(model)
    compiled(torch.randn(4, 16)).square().mean().backward()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
