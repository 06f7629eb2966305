import torch

first, second = torch.nn.LazyLinear(3), torch.nn.LazyLinear(3)
compiled = torch.compile(lambda layer: layer(torch.ones(1, 3)), backend="eager")
compiled(first), compiled(second)
assert not torch.equal(first.weight, second.weight)
