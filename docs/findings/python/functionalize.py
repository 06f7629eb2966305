import torch


@torch.compile(backend="aot_eager")
def f(x):
    return torch.func.functionalize(lambda v: v * 2)(x)


torch.testing.assert_close(f(torch.ones(1)), torch.full((1,), 2.0))
