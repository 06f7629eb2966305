import torch


def f(x):
    return x.add_(2).chunk(2)[0]


eager = f(torch.arange(6.0)[::2])
compiled = torch.compile(f, dynamic=True)(torch.arange(6.0)[::2])
torch.testing.assert_close(compiled, eager)
