import torch
from torch.overrides import TorchFunctionMode


class AddOne(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.sin else result


compiled = torch.compile(lambda x: torch.sin(x), backend="eager")
with AddOne():
    torch.testing.assert_close(compiled(torch.zeros(1)), torch.ones(1))
