import torch


def f(x, index):
    return x.index_add(0, index, x)


arguments = (torch.ones(3, dtype=torch.int8, device="cuda"), torch.arange(3, device="cuda"))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
