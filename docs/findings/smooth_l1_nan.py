import torch

loss = torch.nn.functional.smooth_l1_loss


def gradient(f):
    x = torch.tensor([float("nan"), 1.0], requires_grad=True)
    f(x, torch.zeros(2)).backward()
    return x.grad


eager, compiled = gradient(loss), gradient(torch.compile(loss))
torch.testing.assert_close(compiled, eager, equal_nan=True)  # 0 instead of nan
