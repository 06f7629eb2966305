import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.func.grad(lambda y: y.sin().sum())(x)


result = torch.export.export(Model(), (torch.ones(2),)).module()(torch.ones(2))
assert type(result) is torch.Tensor, type(result)
