import torch


def f(x):
    return x.to(torch.float8_e4m3fn).to(torch.float64)


arguments = (torch.ones(3, dtype=torch.float64, device="cuda"),)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
