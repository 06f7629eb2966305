import collections

import torch


def recorded(recent):
    recent.append(5)
    recent.rotate(1)


compiled = torch.compile(lambda x, recent: (recorded(recent), x + 1)[1], backend="eager")
recent = collections.deque([1, 2, 3], maxlen=3)
compiled(torch.ones(1), recent)
assert list(recent) == [5, 2, 3], recent
