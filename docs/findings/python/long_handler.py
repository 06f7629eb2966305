import torch

HANDLER = "        x = x + 1\n" * 60
SOURCE = f"""
def program(x):
    try:
        pass
    except ValueError:
{HANDLER}    finally:
        x = x + 1
    return x + x.sum().item()
"""
names = {}
exec(compile(SOURCE, __file__, "exec"), names)
torch.compile(names["program"], backend="eager")(torch.ones(3))
