import torch

RATES = [2.0]


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * RATES[0]


f = torch.compile(lambda x: region(x) + region(x), backend="eager", dynamic=True)
f(torch.ones(3))
