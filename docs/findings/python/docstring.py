import torch


def helper():
    "text"


@torch.compile(backend="eager")
def f(x):
    return x * (2 if helper.__doc__ else 3)


helper.__doc__ = None
torch.testing.assert_close(f(torch.ones(1)), torch.full((1,), 3.0))
