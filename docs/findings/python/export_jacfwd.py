import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.func.jacfwd(torch.sin)(x)


x = torch.ones(3)
program = torch.export.export(Model(), (x,))
torch.testing.assert_close(program.module()(x), Model()(x))
