"""The script of the tutorial: a break, a recompile, loops that are not fused. `quiet` fixes two."""

import sys

import torch

QUIET = "quiet" in sys.argv


def attend(x, scale):
    scores = torch.softmax(x @ x.mT * scale, -1)
    if not QUIET:
        print("scores", tuple(scores.shape))
    return scores.mT + scores


step = torch.compile(attend, backend="tcdebug", dynamic=True if QUIET else None)
for scale in (2, 3):
    step(torch.ones(8, 8), scale)
