import torch


def f(x, y):
    y.add_(1)
    return x * 2


x = torch.zeros(3)
y = torch.compile(f, backend="aot_eager", dynamic=True)(x, x.detach())
torch.testing.assert_close(y, torch.full((3,), 2.0))
