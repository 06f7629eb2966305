import torch


class Settings:
    level = 1.0


@torch.compile(backend="eager")
def f(x):
    Settings.level += 1
    torch._dynamo.graph_break()
    return x * Settings.level


f(torch.ones(1))
with torch.device("cpu"):
    torch.testing.assert_close(f(torch.ones(1)), torch.full((1,), 3.0))
