import torch


@torch.compile(backend="eager", dynamic=True)
def f(x, n):
    torch.set_grad_enabled(n == 1)
    return x + 1


f(torch.ones(3), 1)
