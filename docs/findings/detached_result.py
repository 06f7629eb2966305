import torch


def f(x):
    y = x.sum(0)
    return y.unsqueeze(-1), y.detach()


def gradient(function):
    x = torch.ones((2, 3), requires_grad=True)
    view, _ = function(x)
    return torch.autograd.grad(view.sum(), x, allow_unused=True)


torch.testing.assert_close(gradient(torch.compile(f)), gradient(f))
