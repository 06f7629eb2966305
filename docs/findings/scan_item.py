import torch
from torch._higher_order_ops import scan


def f(x):
    return scan(lambda carry, part: (carry + part, carry * part), torch.zeros_like(x[0]), x)


x = torch.ones((3, 2))
eager = f(x)
try:
    compiled = torch.compile(f)(x)
except Exception as error:
    raise AssertionError("it does not compile") from error
torch.testing.assert_close(compiled, eager)
