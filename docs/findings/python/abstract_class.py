import abc

import torch


class Shape(abc.ABC):  # noqa: B024 - only registration matters
    pass


class Square:
    pass


compiled = torch.compile(lambda x: x + isinstance(Square(), Shape), backend="eager")
compiled(torch.ones(1))
Shape.register(Square)
torch.testing.assert_close(compiled(torch.ones(1)), torch.full((1,), 2.0))
