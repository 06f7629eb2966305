import torch


def f(x, y):
    return torch.diagonal_scatter(x, y).unsqueeze(-1)


arguments = (torch.ones((3, 4))[:, ::2], torch.zeros(2))
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
