import torch

log = []


def counted():
    try:
        yield 1
    finally:
        log.append("closed")


@torch.compile(backend="eager")
def f(x):
    for _ in counted():
        break
    return x * len(log)


torch.testing.assert_close(f(torch.ones(1)), torch.ones(1))
