import torch


def f(x):
    return x.any()


arguments = (torch.tensor([1], dtype=torch.uint8),)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
