import torch


def counting(function):
    def inner(x):
        inner.calls += 1
        return function(x)

    inner.calls = 0
    return inner


f = counting(torch.sin)
result = torch.compile(lambda x: f(x) * f.calls, backend="eager")(torch.ones(1))
torch.testing.assert_close(result, torch.ones(1).sin())
