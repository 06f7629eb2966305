import torch


def f(x, index):
    return x.index_put((index,), torch.tensor(1.0), accumulate=True)


arguments = (torch.ones(1, device="cuda"), torch.zeros(3, dtype=torch.int64, device="cuda"))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
