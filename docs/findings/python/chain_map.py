import collections

import torch

chosen = {}
levels = collections.ChainMap(chosen, {"scale": 1.5})
compiled = torch.compile(lambda x: x * levels["scale"], backend="eager")
compiled(torch.ones(1))
chosen["scale"] = 7.5
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 7.5))
