import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.func.jvp(torch.func.grad(lambda v: v.sin().sum()), (x,), (x,))[1]


x = torch.ones(3)
program = torch.export.export(Model(), (x,))
torch.testing.assert_close(program.module()(x), Model()(x))
