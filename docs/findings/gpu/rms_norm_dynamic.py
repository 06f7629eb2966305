import torch


def f(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:])


x = torch.ones((3, 4, 5), device="cuda")
eager, compiled = f(x), torch.compile(f, backend="aot_eager", dynamic=True)(x)
torch.testing.assert_close(compiled, eager)
