import torch


def f(x, y):
    return torch.nextafter(x, y)


arguments = (torch.tensor([float("inf")]).half(), torch.tensor([0.0]).half())
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
