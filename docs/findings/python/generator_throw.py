import torch


def counted():
    count = 0
    while True:
        try:
            yield count
            count += 1
        except KeyError:
            pass


@torch.compile(backend="eager")
def f(x):
    steps = counted()
    return x + next(steps) + steps.throw(KeyError) + next(steps)


torch.testing.assert_close(f(torch.zeros(1)), torch.ones(1))
