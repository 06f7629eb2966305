import torch


@torch.compile(backend="eager")
def f(x):
    items = [1.0, 2.0, 3.0]
    later = iter(items)
    next(later)
    torch._dynamo.graph_break()
    items.insert(0, 9.0)
    return x * next(later)


torch.testing.assert_close(f(torch.ones(1)), torch.ones(1))
