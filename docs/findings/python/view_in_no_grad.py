import torch


def f(x):
    with torch.no_grad():
        return x[0]


x = torch.ones(2, 2, requires_grad=True)
assert f(x).grad_fn is None
compiled = torch.compile(f, backend="aot_eager")(x)
assert compiled.grad_fn is None, compiled.grad_fn
