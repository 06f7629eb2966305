import torch

table = {"a": 1.0, "bb": 2.0}


def program(x, **named):
    for key in named:
        x = x * 2 + len(key)
    return x


compiled = torch.compile(lambda x: program(x, **table), backend="eager")
x = torch.ones(3)
compiled(x)
table["a"] = table.pop("a")
assert torch.equal(compiled(x), program(x, **table)), (compiled(x), program(x, **table))
