import torch


@torch.compile(backend="eager")
def f(x):
    x.data = x.data * 2.0
    return x + 1


x = torch.ones(2, dtype=torch.int64)[:1]
torch.testing.assert_close(f(x), torch.full((1,), 3.0))
