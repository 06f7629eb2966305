import random

import torch

compiled = torch.compile(lambda x: x * random.random(), backend="eager")
assert compiled(torch.tensor(2.0)).dtype == torch.float32
