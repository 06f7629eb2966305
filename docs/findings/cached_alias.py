import torch


def f(x, y):
    x.add_(1)
    return x * y


torch.compile(f)(torch.ones(2), torch.ones(2))
torch._dynamo.reset()
x = torch.ones(2)
torch.testing.assert_close(torch.compile(f)(x, x[:]), torch.full((2,), 4.0))
