import torch


@torch.compile(backend="eager")
def f(x):
    count = len(locals())
    y = x * count
    return (lambda: y)()


torch.testing.assert_close(f(torch.ones(1)), torch.ones(1))
