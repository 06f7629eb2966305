import torch


def f(x):
    return torch.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t + 1), (torch.tensor(0), x))[1]


arguments = (torch.ones(5, 1, 8, device="cuda"),)
eager, compiled = arguments[0] + 3, torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
