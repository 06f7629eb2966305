import torch


class Frozen(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = x * 2
        return y, x * 3


x = torch.ones(1, requires_grad=True)
program = torch.export.export(Frozen(), (x,))
assert not program.module()(x)[0].requires_grad
assert not program.run_decompositions().module()(x)[0].requires_grad
