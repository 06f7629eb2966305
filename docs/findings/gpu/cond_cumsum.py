import torch


def f(x):
    return torch.cond(x.sum() > 0, lambda t: t.cumsum(-1), lambda t: torch.relu(t), (x,))


arguments = (torch.ones(1, device="cuda"),)
eager, compiled = arguments[0].cumsum(-1), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
