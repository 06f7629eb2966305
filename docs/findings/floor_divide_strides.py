import torch


def f(x, y):
    return torch.floor_divide(x, y)


arguments = (torch.ones((2, 2)).mT, torch.ones(()))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
