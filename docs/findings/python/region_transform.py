import torch


class Settings:
    pass


@torch.compiler.nested_compile_region
def region(x):
    Settings.level = 5.0
    return torch.func.grad(lambda v: (v * v).sum())(x)


compiled = torch.compile(lambda x: region(x * 2.0), backend="eager")
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 4.0))
