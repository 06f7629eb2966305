import collections

import torch


def recorded(x, recent):
    recent.appendleft(5)
    return x + 1


recent = collections.deque([1, 2, 3], maxlen=3)
torch.compile(recorded, backend="eager")(torch.ones(1), recent)
assert list(recent) == [5, 1, 2], recent
