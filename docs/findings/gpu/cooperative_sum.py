import torch


def f(x):
    return x.sum()


arguments = (torch.ones(8, device="cuda"),)
options = {"triton.force_cooperative_reductions": True}
eager, compiled = f(*arguments), torch.compile(f, options=options)(*arguments)
torch.testing.assert_close(compiled, eager)
