import torch

seen = {}


@torch.compile(backend="eager", dynamic=True)
def f(x, number):
    seen[number] = True
    return x * 2


f(torch.ones(1), -0.0)
assert str(seen) == "{-0.0: True}", seen
