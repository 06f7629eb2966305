import torch

compiled = torch.compile(lambda x, flag: x * max(flag, x.shape[0]), backend="eager", dynamic=True)
torch.testing.assert_close(compiled(torch.ones(2), True), torch.full((2,), 2.0))
