import torch


@torch.compile(backend="eager")
def f(x):
    x.data = x.data * 2
    x.data.add_(1)


x = torch.ones(1)
f(x)
assert vars(x) == {}, vars(x)
