import torch


def f(x):
    y = (x * 2).mT
    return y, y.detach()


view, detached = torch.compile(f)(torch.ones((2, 3), requires_grad=True))
torch.testing.assert_close(detached, view.detach())
