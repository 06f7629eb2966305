import torch


def f(x):
    return torch.acosh(x)


arguments = (torch.tensor([3e38] * 16),)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
