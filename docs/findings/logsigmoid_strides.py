import torch


def f(x):
    return torch.nn.functional.logsigmoid(x)


arguments = (torch.ones((2, 3)).mT,)
eager, compiled = f(*arguments), torch.compile(f)(*arguments)
torch.testing.assert_close(compiled, eager, equal_nan=True, check_stride=True)
