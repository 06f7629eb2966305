import torch


def f(x, y):
    return x * 2, y.kthvalue(1).values, y.kthvalue(1).values


def arguments():
    return torch.ones(1, requires_grad=True), torch.ones(3)


def last(outputs):
    outputs[1].zero_()
    return outputs[2]


eager, compiled = f(*arguments()), torch.compile(f)(*arguments())
torch.testing.assert_close(last(compiled), last(eager))
