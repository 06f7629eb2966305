import torch

rate = [1]


@torch.compile(backend="eager")
def f(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * rate[0])
    return y.sum()


x = torch.ones(1, requires_grad=True)
loss = f(x)
rate[0] = 5
loss.backward()
torch.testing.assert_close(x.grad, torch.tensor([10.0]))
