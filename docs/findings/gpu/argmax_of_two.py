import torch


def f(x):
    return x.argmax()


arguments = (torch.randint(0, 2, (2, 2), device="cuda")[1:],)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager)
