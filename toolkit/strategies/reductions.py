"""Reductions and scans over one, several or all dimensions, with or without keepdim."""

from __future__ import annotations

from tcdebug.strategies.row import Draw, Row, of_one, with_dim
from tcdebug.strategies.scope import Scope, Want

FLOATS, NUMBERS, ALL = "fh", "fhi", "fhib"
MOST_STEPS = 64
"""The longest running product that is drawn with a gradient."""


def over_dims(name: str, want: Want, extra: str = "") -> Draw:
    """Return a reduction over some dimensions, or all of them."""

    def draw(scope: Scope) -> str:
        x = scope.operand(want)
        if x.tensor.dim() == 0 or scope.integer(0, 3) == 3:
            return f"{x}.{name}({extra})"
        keep = ", keepdim=True" if scope.flag() else ""
        more = f", {extra}" if extra else ""
        return f"{x}.{name}({scope.dims(x)}{more}{keep})"

    return draw


def over_dim(name: str, want: Want, extra: str = "") -> Draw:
    """Return a reduction over one dimension."""

    def draw(scope: Scope) -> str:
        x = scope.operand(want)
        keep = ", keepdim=True" if scope.flag() else ""
        return f"{x}.{name}({scope.dim(x)}{extra}{keep})"

    return draw


def _layer_norm(scope: Scope) -> str:
    x = scope.operand(Want("fh", 1, nonempty=True))
    return f"torch.nn.functional.layer_norm({x}, {x}.shape[-1:])"


def _cross_entropy(scope: Scope) -> str:
    x = scope.operand(Want("f", 2, 2, nonempty=True))
    index = scope.indices((x.tensor.shape[0],), x.tensor.shape[1])
    return f"torch.nn.functional.cross_entropy({x}, {index})"


def _cumprod(scope: Scope) -> str:
    """Return a running product. Tracing its backward takes as many steps as it has elements."""
    x = scope.operand(Want(FLOATS, 1))
    dim = scope.dim(x)
    long = scope.gradients and x.tensor.shape[dim] > MOST_STEPS
    return f"{x}{'.detach()' if long else ''}.cumprod({dim})"


def _full(name: str) -> Draw:
    return lambda scope: f"{scope.operand(Want(NUMBERS, nonempty=True))}.{name}()"


FILLED = Want(NUMBERS, 1, nonempty=True)

REDUCTIONS = (
    Row("sum", over_dims("sum", Want(ALL))),
    Row("mean", over_dims("mean", Want(FLOATS))),
    Row("var", over_dims("var", Want(FLOATS), "correction=1")),
    Row("std", over_dims("std", Want(FLOATS), "correction=0")),
    Row("amax", over_dims("amax", Want(ALL, nonempty=True)), exact=True),
    Row("amin", over_dims("amin", Want(ALL, nonempty=True)), exact=True),
    Row("logsumexp", over_dim("logsumexp", Want(FLOATS, 1))),
    Row("argmax", over_dim("argmax", FILLED), exact=True),
    Row("argmin", over_dim("argmin", FILLED), exact=True),
    Row("argmax_all", _full("argmax"), exact=True),
    Row("max_all", _full("max"), exact=True),
    Row("prod", over_dim("prod", Want(FLOATS, 1))),
    Row("any", over_dim("any", Want(ALL, 1)), exact=True),
    Row("all", over_dim("all", Want(ALL, 1)), exact=True),
    Row("norm", with_dim("{x}.norm(dim={dim})", Want("f", 1))),
    Row("cumsum", with_dim("{x}.cumsum({dim})", Want(ALL, 1))),
    Row("cumprod", _cumprod),
    Row("cummax", with_dim("{x}.cummax({dim}).values", FILLED), exact=True),
    Row("cummin", with_dim("{x}.cummin({dim}).values", FILLED), exact=True),
    Row("cummax_indices", with_dim("{x}.cummax({dim}).indices", FILLED), exact=True),
    Row("logcumsumexp", with_dim("{x}.logcumsumexp({dim})", Want(FLOATS, 1))),
    Row("softmax", with_dim("{x}.softmax({dim})", Want(FLOATS, 1))),
    Row("log_softmax", with_dim("{x}.log_softmax({dim})", Want(FLOATS, 1))),
    Row("max_values", with_dim("{x}.max({dim}).values", FILLED), exact=True),
    Row("min_indices", with_dim("{x}.min({dim}).indices", FILLED), exact=True),
    Row("sort", with_dim("{x}.sort({dim}).values", FILLED), exact=True),
    Row("topk", with_dim("{x}.topk(1, {dim}).values", FILLED), exact=True),
    Row("median", with_dim("{x}.median({dim}).values", FILLED), exact=True),
    Row("count_nonzero", with_dim("torch.count_nonzero({x}, {dim})", Want(ALL, 1)), exact=True),
    Row("normalize", with_dim("torch.nn.functional.normalize({x}, dim={dim})", Want("f", 1))),
    Row("layer_norm", _layer_norm),
    Row("nansum", over_dims("nansum", Want(FLOATS))),
    Row("diff", with_dim("torch.diff({x}, dim={dim})", Want(NUMBERS, 1, nonempty=True))),
    Row("kthvalue", with_dim("{x}.kthvalue(1, {dim}).values", FILLED), exact=True),
    Row("cross_entropy", _cross_entropy),
    Row(
        "batch_norm",
        of_one(
            "torch.nn.functional.batch_norm(torch.cat(({x}, {x})), None, None, training=True)",
            Want("f", 2, nonempty=True),
        ),
    ),
)
