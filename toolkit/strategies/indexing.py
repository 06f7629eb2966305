"""Gathers and scatters. Values written to the same element are added."""

from __future__ import annotations

from tcdebug.strategies.row import Draw, Row
from tcdebug.strategies.scope import Scope, ScopeValue, Want

ANY, NUMBERS = "fhib", "fhi"


def _source(scope: Scope, kinds: str = ANY) -> tuple[ScopeValue, int]:
    """Return a tensor that is not empty, and one of its dimensions."""
    x = scope.operand(Want(kinds, 1, nonempty=True))
    return x, scope.dim(x)


def _counts(scope: Scope) -> int:
    return scope.choose((2, 1, 3, 9, 17))


def _select(scope: Scope) -> str:
    x, dim = _source(scope)
    index = scope.indices((_counts(scope),), x.tensor.shape[dim])
    return f"torch.index_select({x}, {dim}, {index})"


def _index(scope: Scope) -> str:
    x, _ = _source(scope)
    sizes = scope.choose(((2,), (3,), (2, 3), (1,)))
    index = scope.indices(sizes, x.tensor.shape[0])
    if x.tensor.dim() > 1 and scope.flag():
        other = scope.indices(sizes, x.tensor.shape[1])
        return f"{x}[{index}, {other}]"
    return f"{x}[{index}]" if x.tensor.dim() < 2 or scope.flag() else f"{x}[:, {_inner(scope, x)}]"


def _inner(scope: Scope, x: ScopeValue) -> ScopeValue:
    scope.operands.pop()
    return scope.indices((2,), x.tensor.shape[1])


def _gather(scope: Scope) -> str:
    x, dim = _source(scope)
    index = scope.indices(tuple(x.tensor.shape), x.tensor.shape[dim])
    return f"torch.gather({x}, {dim}, {index})"


def _scattered(template: str, kinds: str) -> Draw:
    """Return a line that adds values of a tensor to some of its elements."""

    def draw(scope: Scope) -> str:
        x, dim = _source(scope, kinds)
        index = scope.indices(tuple(x.tensor.shape), x.tensor.shape[dim])
        return template.format(x=x, dim=dim, index=index, y=scope.alike(x))

    return draw


def _index_put(scope: Scope) -> str:
    x, _ = _source(scope, NUMBERS)
    index = scope.indices((_counts(scope),), x.tensor.shape[0])
    number = scope.choose(("1", "2"))
    values = f"torch.tensor({number}, dtype={x.tensor.dtype})"
    return f"torch.index_put({x}, ({index},), {values}, accumulate=True)"


def _index_add(scope: Scope) -> str:
    x, dim = _source(scope, NUMBERS)
    index = scope.indices((x.tensor.shape[dim],), x.tensor.shape[dim])
    return f"torch.index_add({x}, {dim}, {index}, {scope.alike(x)})"


def _fill(scope: Scope) -> str:
    x, dim = _source(scope, NUMBERS)
    index = scope.indices((_counts(scope),), x.tensor.shape[dim])
    return f"torch.index_fill({x}, {dim}, {index}, 1)"


def _reduced(reduce: str, kinds: str) -> Draw:
    """Return a line that reduces several elements of the source into one."""

    def draw(scope: Scope) -> str:
        x, dim = _source(scope, kinds)
        index = scope.indices((x.tensor.shape[dim],), x.tensor.shape[dim])
        kept = scope.flag()
        source = scope.alike(x)
        call = f"{x}, {dim}, {index}, {source}, {reduce!r}, include_self={kept}"
        return f"torch.index_reduce({call})"

    return draw


def _index_copy(scope: Scope) -> str:
    """Return a line that writes each element once, so that the order does not matter."""
    x, dim = _source(scope)
    order = f"torch.arange({x.tensor.shape[dim]}, device={x}.device).flip(0)"
    return f"torch.index_copy({x}, {dim}, {order}, {scope.alike(x)})"


def _take(scope: Scope) -> str:
    x, _ = _source(scope)
    index = scope.indices(scope.choose(((2,), (2, 3), (9,))), x.tensor.numel())
    return f"torch.take({x}, {index})"


def _diagonal_scatter(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 2, nonempty=True))
    return f"torch.diagonal_scatter({x}, {x}.diagonal() * 2)"


def _bucketize(scope: Scope) -> str:
    x = scope.operand(Want("f"))
    right = scope.flag()
    bounds = f"torch.tensor([-1.0, 0.0, 2.0], device={x}.device)"
    return f"torch.bucketize({x}, {bounds}, right={right})"


def _embedding(scope: Scope) -> str:
    table = scope.operand(Want("f", 2, 2, nonempty=True))
    index = scope.indices(scope.choose(((2,), (2, 3), (9,))), table.tensor.shape[0])
    return f"torch.nn.functional.embedding({index}, {table})"


def _select_scatter(scope: Scope) -> str:
    x, dim = _source(scope)
    return f"torch.select_scatter({x}, {x}.select({dim}, 0) * 2, {dim}, -1)"


def _slice_scatter(scope: Scope) -> str:
    x, dim = _source(scope)
    return f"torch.slice_scatter({x}, {x}.narrow({dim}, 0, 1) + 1, {dim}, 0, 1)"


def _one_hot(scope: Scope) -> str:
    index = scope.indices((_counts(scope),), 4)
    return f"torch.nn.functional.one_hot({index}, 4)"


INDEXING = (
    Row("index_select", _select, exact=True),
    Row("index", _index, exact=True),
    Row("gather", _gather, exact=True),
    Row("index_put", _index_put),
    Row("index_add", _index_add),
    Row("index_fill", _fill, exact=True),
    Row("scatter_add", _scattered("torch.scatter_add({x}, {dim}, {index}, {y})", NUMBERS)),
    Row("scatter_amax", _scattered(
        "torch.scatter_reduce({x}, {dim}, {index}, {y}, 'amax')", NUMBERS), exact=True),
    Row("scatter_mean", _scattered(
        "torch.scatter_reduce({x}, {dim}, {index}, {y}, 'mean', include_self=False)", "f")),
    Row("index_reduce_amax", _reduced("amax", NUMBERS), exact=True),
    Row("index_reduce_mean", _reduced("mean", "f")),
    Row("index_copy", _index_copy, exact=True),
    Row("take", _take, exact=True),
    Row("diagonal_scatter", _diagonal_scatter),
    Row("bucketize", _bucketize, exact=True),
    Row("take_along", _scattered("torch.take_along_dim({x}, {index}, {dim})", ANY), exact=True),
    Row("embedding", _embedding, exact=True),
    Row("select_scatter", _select_scatter, exact=True),
    Row("slice_scatter", _slice_scatter, exact=True),
    Row("one_hot", _one_hot, exact=True),
)  # fmt: skip
