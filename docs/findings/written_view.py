import torch


@torch.compile(backend="aot_eager")
def f(x):
    y = x[:1]
    y.add_(1)
    return y


x = torch.ones(2, requires_grad=True) * 2
with torch.no_grad():
    torch.testing.assert_close(f(x), torch.tensor([3.0]))
