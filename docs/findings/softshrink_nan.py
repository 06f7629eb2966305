import torch


def f(x):
    return torch.nn.functional.softshrink(x)


arguments = (torch.tensor([float("nan")]),)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
