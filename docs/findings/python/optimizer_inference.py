import torch

weight = torch.nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
optimizer = torch.optim.Adam([weight])


@torch.compile(backend="eager")
def step():
    optimizer.step()


with torch.inference_mode():
    step()
assert optimizer.state[weight]["exp_avg"].is_inference()
