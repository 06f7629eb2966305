import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.detach() * x


x = torch.ones(1, requires_grad=True)
program = torch.export.export(Model(), (x,)).run_decompositions()
program.module()(x).backward()
torch.testing.assert_close(x.grad, torch.ones(1))
