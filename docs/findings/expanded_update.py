import torch


@torch.compile(backend="aot_eager")
def f(x):
    x.expand(3).copy_(torch.arange(3.0))
    return x


torch.testing.assert_close(f(torch.full((3,), 1e10)), torch.arange(3.0))
