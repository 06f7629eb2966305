"""The function that docs/tour.md follows through the compiler."""

import torch


def f(x, w):
    h = torch.relu(x @ w) * 1.0
    return torch.softmax(h, dim=-1)


x = torch.randn(64, 128)
w = torch.randn(128, 32, requires_grad=True)
compiled = torch.compile(f, backend="tcdebug")
compiled(x, w).sum().backward()
