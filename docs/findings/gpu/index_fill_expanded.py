import torch


def f(x, index):
    return x.index_fill(-1, index, 1)


arguments = (torch.zeros(1, device="cuda").expand(5), torch.zeros(9, dtype=torch.int64, device="cuda"))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
