import torch

torch._dynamo.config.compiled_autograd = True
RATES = [2.0]
layer = torch.nn.Tanh()
layer.register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * RATES[0],))
x = torch.zeros(1, requires_grad=True)
torch.compile(lambda x: layer(x), backend="aot_eager")(x).backward()
torch.testing.assert_close(x.grad, torch.full((1,), 2.0))
