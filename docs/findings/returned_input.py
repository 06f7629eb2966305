import torch


def f(x, y, z):
    y.add_(z)
    return x.add_(2)


def arguments():
    y = torch.ones(1)
    return torch.tensor([10.0, 20.0])[1:], y, y[:1]


eager = f(*arguments())
compiled = torch.compile(f)(*arguments())
torch.testing.assert_close(compiled, eager)
