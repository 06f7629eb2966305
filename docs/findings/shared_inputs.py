import torch


def f(x, y):
    x.add_(1)
    return y[..., 1:]


def arguments():
    x = torch.zeros((4, 3, 2))
    return x, x[:1]


eager = f(*arguments())
compiled = torch.compile(f)(*arguments())
torch.testing.assert_close(compiled, eager)
