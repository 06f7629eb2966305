import torch


def program(x):
    doubled = x * 2
    return doubled if doubled.grad is None else doubled + 100


x = torch.ones(2, requires_grad=True)
result = torch.compile(program, backend="eager")(x)
assert torch.equal(result, program(x)), result
