import torch


@torch.compile(backend="eager", dynamic=True)
def f(x, n):
    return x * max(n, 2.5)


x = torch.ones(1, dtype=torch.int64)
torch.testing.assert_close(f(x, 5), x * 5)
