import torch


class Box:
    pass


@torch.compile(backend="eager")
def f(x):
    setattr(box, "level 2.5", 1)
    return x + 1


box = Box()
f(torch.ones(1))
assert vars(box) == {"level 2.5": 1}, vars(box)
