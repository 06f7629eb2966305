import torch


def f(x, y):
    return x[y]


arguments = (
    torch.ones(2),
    torch.zeros((3, 2), dtype=torch.int64).mT,
)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
