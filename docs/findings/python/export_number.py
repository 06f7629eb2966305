import numpy
import torch

number = numpy.float64(2.0)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * number


x = torch.ones(2)
result = torch.export.export(Model(), (x,), strict=True).module()(x)
assert type(result) is torch.Tensor, type(result)
