import torch


def f(x, index):
    y = x * 2
    return y.index_add(0, index, y)


x, index = torch.ones(17), torch.arange(17).roll(-1)
torch.testing.assert_close(torch.compile(f)(x, index), f(x, index))
