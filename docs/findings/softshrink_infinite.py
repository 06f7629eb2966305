import torch

softshrink = torch.nn.functional.softshrink


def gradient(f):
    x = torch.tensor([0.25], requires_grad=True)
    return torch.autograd.grad(f(x), x, torch.tensor([float("inf")]))[0]


eager, compiled = gradient(softshrink), gradient(torch.compile(softshrink, backend="aot_eager"))
torch.testing.assert_close(compiled, eager)  # nan instead of 0
