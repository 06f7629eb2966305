import torch


def f(x):
    return x.max().sqrt()


def gradient(function):
    x = torch.tensor([-1.0, 0.0, -2.0], requires_grad=True)
    function(x).backward()
    return x.grad


torch.testing.assert_close(gradient(torch.compile(f)), gradient(f))
