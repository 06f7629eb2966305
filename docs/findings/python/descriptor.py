import torch


class Limit:
    def __get__(self, owner, kind):
        return owner.__dict__.get("limit", 1.0)

    def __set__(self, owner, value):
        owner.__dict__["limit"] = value


class Limited:
    limit = Limit()


@torch.compile(backend="eager")
def f(x, limited):
    limited.limit = limited.limit + 1
    return x * limited.limit


limited = Limited()
f(torch.ones(1), limited)
torch.testing.assert_close(f(torch.ones(1), limited), torch.full((1,), 3.0))
