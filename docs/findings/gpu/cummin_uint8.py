import torch


def f(x):
    return x.cummin(-1).values


arguments = (torch.arange(9, dtype=torch.uint8, device="cuda"),)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
