import torch

previous = None


@torch.compile(backend="eager")
def change(x):
    return x - previous


x = previous = torch.ones(3)
assert change(x)[0] == 0
previous = torch.zeros(3)
assert change(x)[0] == 1, f"1 - 0 is {change(x)[0].item()}"
