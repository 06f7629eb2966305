import torch


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    @torch.compiler.nested_compile_region
    def forward(self, x):
        self.steps += 1
        return x * 2


torch.compile(Counting(), backend="eager")(torch.ones(3))
