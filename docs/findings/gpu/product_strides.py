import torch


def f(x):
    return x @ x.mT


arguments = (torch.ones(3, 8, dtype=torch.bfloat16, device="cuda")[:, ::2],)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, check_stride=True)
