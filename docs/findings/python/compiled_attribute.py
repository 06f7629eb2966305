import torch


@torch.compile(backend="eager")
def counted(x):
    counted.called = True
    return x + 1


counted(torch.ones(1))
assert counted.called
