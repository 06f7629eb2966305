import torch


@torch.compile(backend="aot_eager")
def f(x, y):
    return y * 2 if x._version > 0 else y * 3


x = torch.ones(1)
x.mul_(2)
torch.testing.assert_close(f(x, torch.ones(1)), torch.full((1,), 2.0))
