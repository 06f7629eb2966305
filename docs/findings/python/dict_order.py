import torch

table = {"a": 1, "b": 2}


@torch.compile(backend="eager")
def f(x):
    table["c"] = 3
    table.popitem()
    return x + 1


f(torch.ones(1))
table["a"] = table.pop("a")
f(torch.ones(1))
assert list(table) == ["b", "a"], table
