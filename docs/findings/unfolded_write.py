import torch


def f(x):
    x.unfold(0, 1, 2).add_(2)
    return x


eager = f(torch.ones(3))
compiled = torch.compile(f)(torch.ones(3))
torch.testing.assert_close(compiled, eager)
