import torch


@torch.compile(backend="eager", dynamic=True)
def f(x, n):
    return x * n**-1


torch.testing.assert_close(f(torch.ones(1), -4), torch.full((1,), -0.25))
