import torch


def f(x, y):
    return torch.logical_xor(x, y)


arguments = (torch.tensor([0, 1, 255], dtype=torch.uint8), torch.tensor(256))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
