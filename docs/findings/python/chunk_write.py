import torch


def f(x):
    return (x * 2).unbind(0)


x = torch.ones(2, 2, requires_grad=True)
for call in (f, torch.compile(f, backend="aot_eager")):
    first, second = call(x)
    try:
        first.add_(1)
    except RuntimeError:
        continue
    raise AssertionError("one of several views of a value was changed in place")
