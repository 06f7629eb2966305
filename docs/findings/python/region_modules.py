import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x * self.weight


first, second = Layer(), Layer()
f = torch.compile(lambda x: second(first(x)), backend="eager", dynamic=True)
f(torch.ones(3))
f(torch.ones(3, requires_grad=True))
