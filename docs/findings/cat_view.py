import torch


def f(x):
    y = -x
    return torch.cat((x, y)), y.view(-1)


joined, flat = torch.compile(f)(torch.ones(2, 3))
flat.add_(5)
assert joined[2, 0] == -1, f"a write to one result makes the other {joined[2, 0].item()}"
