import torch


@torch.compile(backend="aot_eager")
def f(x):
    with torch.inference_mode():
        return x * 2


assert f(torch.ones(1)).is_inference()
