import torch
from torch.utils.checkpoint import checkpoint


def inner(x):
    return checkpoint(torch.sin, x, use_reentrant=False) * 2


class Model(torch.nn.Module):
    def forward(self, x):
        return checkpoint(inner, x, use_reentrant=False)


x = torch.ones(3, requires_grad=True)
assert torch.export.export(Model(), (x,)).module()(x).requires_grad
