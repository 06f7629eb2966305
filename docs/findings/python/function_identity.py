import torch


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value


@torch.compile(backend="eager")
def f(x):
    return Same.apply(x), x * 2


x = torch.ones(1)
f(x)[0].requires_grad_()
assert not x.requires_grad
