import torch


def f(x, y):
    return torch.floor_divide(x, y)


arguments = (
    torch.tensor([float("inf")]),
    torch.tensor([2.0]),
)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
