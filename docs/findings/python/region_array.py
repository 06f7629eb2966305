import numpy
import torch

NUMBER = numpy.float64(2.0)


@torch.compile(backend="eager")
def f(x):
    return torch.compiler.nested_compile_region(lambda v: v * NUMBER)(x)


torch.testing.assert_close(f(torch.ones(1)), torch.full((1,), 2.0))
