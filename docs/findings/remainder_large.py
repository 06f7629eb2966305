import torch


def f(x, y):
    return torch.remainder(x, y)


arguments = (
    torch.tensor([1e5] * 16),
    torch.tensor([-0.8] * 16),
)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
