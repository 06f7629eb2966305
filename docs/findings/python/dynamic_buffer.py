import torch

layer = torch.nn.BatchNorm1d(3, affine=False)


def f(x):
    saved = {name: value.clone() for name, value in layer.state_dict().items()}
    return layer(x), saved


compiled = torch.compile(f, backend="aot_eager", dynamic=True)
result, _ = compiled(torch.ones(2, 3))
torch.testing.assert_close(result, torch.zeros(2, 3))
