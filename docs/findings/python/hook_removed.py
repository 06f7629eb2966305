import torch


@torch.compile(backend="eager")
def f(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3).remove()
    return y


x = torch.ones(1, requires_grad=True)
f(x).backward()
torch.testing.assert_close(x.grad, torch.full((1,), 2.0))
