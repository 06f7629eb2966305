import torch

rates = [2.0]


@torch.compiler.nested_compile_region
def region(x):
    return x * rates[0]


compiled = torch.compile(lambda x: region(x) + region(x), backend="eager")
compiled(torch.ones(1))
rates[0] = 3.0
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 6.0))
