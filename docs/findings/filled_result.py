import torch


@torch.compile(backend="aot_eager")
def f(x):
    y = x * 2
    y[...].fill_(3.0)
    return y


y = f(torch.ones(2, requires_grad=True))
y.mul_(2)
torch.testing.assert_close(y, torch.full((2,), 6.0))
