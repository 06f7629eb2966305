import torch


class Rounded(torch.autograd.Function):
    generate_vmap_rule = True
    forward = staticmethod(lambda value: value.round())
    setup_context = staticmethod(lambda ctx, inputs, output: None)
    backward = staticmethod(lambda ctx, gradient: gradient)


x = torch.ones(2, requires_grad=True)
f = torch.compile(lambda x: torch.vmap(Rounded.apply)(x).sum(), backend="eager")
f(x).backward()
torch.testing.assert_close(x.grad, torch.ones(2))
