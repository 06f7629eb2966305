import torch


class Doubling:
    def scaled(self, x):
        return x * 2


class Tripling:
    def scaled(self, x):
        return x * 3


class Layer(Doubling):
    pass


compiled = torch.compile(lambda x: Layer().scaled(x), backend="eager")
compiled(torch.ones(1))
Layer.__bases__ = (Tripling,)
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 3.0))
