import torch


def f(x):
    x.data.add_(1)
    return x * 2


for compiled in (f, torch.compile(f, backend="aot_eager")):
    x = torch.ones(1, requires_grad=True)
    square = x * x
    compiled(x)
    square.backward()
