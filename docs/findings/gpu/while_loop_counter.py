import torch


def f(x):
    counter = torch.tensor(0)  # on the CPU
    return torch.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.sin()), (counter, x))[1]


arguments = (torch.ones(4, device="cuda"),)
eager, compiled = f(*arguments), torch.compile(f, mode="reduce-overhead")(*arguments)
torch.testing.assert_close(compiled, eager)
