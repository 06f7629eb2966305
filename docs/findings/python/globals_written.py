import torch

level = 2.0


@torch.compile(backend="eager")
def f(x):
    globals()["level"] = 5.0
    return x * level


torch.testing.assert_close(f(torch.ones(1)), torch.full((1,), 5.0))
