import torch


def helper():
    pass


compiled = torch.compile(lambda x: x * len(helper.__name__), backend="eager")
compiled(torch.ones(1))
helper.__name__ = "helpers"
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 7.0))
