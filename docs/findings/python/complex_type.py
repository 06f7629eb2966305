import torch

compiled = torch.compile(lambda x: x * len(x.type()), backend="eager")
x = torch.ones(1, dtype=torch.complex64)
torch.testing.assert_close(compiled(x), x * 19)
