import math

import torch


def f(x, n):
    return x * math.copysign(2.0, n)


compiled = torch.compile(f, backend="eager", dynamic=True)
torch.testing.assert_close(compiled(torch.ones(1), -0.0), torch.full((1,), -2.0))
