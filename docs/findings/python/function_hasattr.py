import torch


def settings():
    pass


def scaled(x):
    return x * getattr(settings, "rate", 1.0)


compiled = torch.compile(scaled, backend="eager")
compiled(torch.ones(1))
settings.rate = 3.0
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 3.0))
