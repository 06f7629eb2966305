import torch
from torch.utils.checkpoint import checkpoint


def inner(x):
    return checkpoint(torch.sin, x, use_reentrant=False) * 2


class Model(torch.nn.Module):
    def forward(self, x):
        return checkpoint(inner, x, use_reentrant=False)


x = torch.ones(3, requires_grad=True)
program = torch.export.export(Model(), (x,))
assert program.module()(x).requires_grad == Model()(x).requires_grad
