import torch


class Box:
    pass


box = Box()
box.level = 1
compiled = torch.compile(lambda x: x * box.__dict__.get("scale", 2), backend="eager")
compiled(torch.ones(1))
box.scale = 9
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 9.0))
