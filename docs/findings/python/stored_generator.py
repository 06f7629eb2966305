import torch


def counting():
    yield 1
    yield 2


numbers = counting()
compiled = torch.compile(lambda x: x * next(numbers), backend="eager")
compiled(torch.ones(1))
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 2.0))
