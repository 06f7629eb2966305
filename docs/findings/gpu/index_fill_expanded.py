import torch


def f(x, index):
    return x.index_fill(-1, index, 1)


index = torch.zeros(9, dtype=torch.int64, device="cuda")
arguments = (torch.zeros(1, device="cuda").expand(5), index)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
