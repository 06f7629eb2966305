"""Operations beside fused loops: products, convolutions, pools, random numbers, calls."""

from __future__ import annotations

from tcdebug.strategies.row import Draw, Row, of_one
from tcdebug.strategies.scope import Scope, ScopeValue, Want

functional = "torch.nn.functional"
MOST_KEYS = 1024
"""The maximum number of rows that attention compares."""
FEW_ROWS = 3


def squared(scope: Scope, x: ScopeValue) -> str:
    """Return a tensor and its transpose as the factors of a product, with few elements."""
    rows, width = x.tensor.shape[-2:]
    too_large = x.tensor.numel() // max(width, 1) * rows > scope.most_elements
    return f"{x}.mT, {x}" if too_large else f"{x}, {x}.mT"


def shortened(scope: Scope, x: ScopeValue) -> str:
    """Return an operand, or its first rows if its product with itself has too many elements."""
    too_large = x.tensor.shape[0] ** 2 > scope.most_elements
    return f"{x}[:{FEW_ROWS}]" if too_large else str(x)


def _matmul(scope: Scope) -> str:
    x = scope.operand(Want("f", 1, 3, nonempty=True))
    width = x.tensor.shape[-1]
    fits = Want("f", 1, 2, accept=lambda t: t.dtype == x.tensor.dtype and t.shape[0] == width)
    known = [v for v in reversed(scope.values) if fits.fits(v.tensor)][:3]
    if known and scope.flag():
        scope.operands.append(known[0])
        return f"torch.matmul({x}, {known[0]})"
    if x.tensor.dim() > 1:
        return f"torch.matmul({squared(scope, x)})"
    return f"torch.outer({shortened(scope, x)}, {x})"


def _linear(scope: Scope) -> str:
    x = scope.operand(Want("f", 1, 3, accept=lambda t: t.dtype.itemsize == 4))
    if x.tensor.dtype.itemsize != 4:
        return f"{x} + 1"
    weight = scope.new_input((scope.choose((1, 3, 16)), x.tensor.shape[-1]), "f")
    return f"{functional}.linear({x}, {weight}.to(torch.float32))"


def _addmm(scope: Scope) -> str:
    x = scope.operand(Want("f", 2, 2, nonempty=True))
    return f"torch.addmm({x}.sum(0, keepdim=True)[:, :1], {squared(scope, x)})"


def _bmm(scope: Scope) -> str:
    x = scope.operand(Want("f", 3, 3, nonempty=True))
    return f"torch.bmm({squared(scope, x)})"


def _image(template: str) -> Draw:
    """Return a line over the last two dimensions of an operand, which are not empty."""

    def draw(scope: Scope) -> str:
        x = scope.operand(Want("f", 4, 4, nonempty=True))
        return template.format(x=x, channels=f"{x}.shape[1]")

    return draw


def _conv(scope: Scope) -> str:
    x = scope.operand(Want("f", 4, 4, nonempty=True))
    size = scope.choose((1, 3))
    weight = _ones((2, x.tensor.shape[1], size, size), x)
    return f"{functional}.conv2d({x}, {weight}, padding=1, stride={scope.choose((1, 2))})"


def _conv1d(scope: Scope) -> str:
    x = scope.operand(Want("f", 3, 3, nonempty=True))
    return f"{functional}.conv1d({x}, {_ones((2, x.tensor.shape[1], 1), x)})"


def _ones(sizes: tuple[int, ...], x: ScopeValue) -> str:
    """Return weights for an operand."""
    return f"torch.ones({sizes}, dtype={x.tensor.dtype}, device={x}.device)"


def _attention(scope: Scope) -> str:
    x = scope.operand(Want("f", 3, 4, nonempty=True))
    few = x if x.tensor.shape[-2] <= MOST_KEYS else f"{x}[..., :{MOST_KEYS}, :]"
    return f"{functional}.scaled_dot_product_attention({few}, {few}, {few})"


def _einsum(scope: Scope) -> str:
    x = scope.operand(Want("f", 2, 2))
    return f"torch.einsum('ij,kj->ik', {shortened(scope, x)}, {x})"


FLOAT = Want("f")

NEIGHBOURS = (
    Row("matmul", _matmul),
    Row("linear", _linear),
    Row("addmm", _addmm),
    Row("bmm", _bmm),
    Row("conv2d", _conv),
    Row("conv1d", _conv1d),
    Row("max_pool2d", _image(functional + ".max_pool2d({x}, 2, padding=1)"), exact=True),
    Row("avg_pool2d", _image(functional + ".avg_pool2d({x}, 1)")),
    Row("adaptive_avg_pool2d", _image(functional + ".adaptive_avg_pool2d({x}, 2)")),
    Row("max_pool3d", _image(
        functional + ".max_pool3d({x}.contiguous(), 2, padding=1)"), exact=True),
    Row("avg_pool3d", _image(functional + ".avg_pool3d({x}.contiguous(), 1, padding=0)")),
    Row("einsum", _einsum),
    Row("interpolate", _image(functional + ".interpolate({x}, scale_factor=2)"), exact=True),
    Row("attention", _attention),
    Row("rand_like", of_one("torch.rand_like({x})", FLOAT)),
    Row("randn_like", of_one("torch.randn_like({x})", FLOAT)),
    Row("dropout", of_one(functional + ".dropout({x}, 0.5)", FLOAT)),
    Row("bernoulli", of_one("torch.bernoulli({x}, 0.5)", FLOAT)),
    Row("checkpoint", of_one(
        "torch.utils.checkpoint.checkpoint(lambda t: t.sin() * t, {x}, use_reentrant=False)",
        FLOAT)),
    Row("vmap", of_one(
        "torch.vmap(lambda t: t.sum() + t)({x})", Want("f", 1, nonempty=True))),
    Row("full", of_one("torch.full_like({x}, 2)", Want("fhib")), exact=True),
    Row("zeros", of_one("torch.zeros({x}.shape, device={x}.device)", Want("fhib")), exact=True),
    Row("arange", of_one(
        "torch.arange({x}.shape[0], device={x}.device)", Want("fhib", 1)), exact=True),
)  # fmt: skip
