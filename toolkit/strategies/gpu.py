"""Operations for which GPUs have special kernels.

Products of half types run on tensor cores, transposed copies in square tiles, sums over both
dimensions in one kernel, and sums into a few elements with atomic additions.
"""

from __future__ import annotations

from tcdebug.strategies.neighbours import MOST_KEYS, functional, shortened, squared
from tcdebug.strategies.reductions import over_dims
from tcdebug.strategies.row import Row, of_one
from tcdebug.strategies.scope import Scope, Want

HALF = "h"
BINS = 5


def _matmul(scope: Scope) -> str:
    x = scope.operand(Want(HALF, 2, 3, nonempty=True))
    return f"torch.matmul({squared(scope, x)})"


def _linear(scope: Scope) -> str:
    """Return a product with a bias, and sometimes an activation that can be fused into it."""
    x = scope.operand(Want(HALF, 2, 3, nonempty=True))
    width, features = x.tensor.shape[-1], scope.choose((1, 8, 16, 33))
    weight = scope.new_input((features, width), "f")
    bias = scope.new_input((features,), "f")
    dtype = x.tensor.dtype
    text = f"{functional}.linear({x}, {weight}.to({dtype}), {bias}.to({dtype}))"
    return f"{functional}.gelu({text})" if scope.flag() else text


def _attention(scope: Scope) -> str:
    x = scope.operand(Want(HALF, 3, 4, nonempty=True))
    few = x if x.tensor.shape[-2] <= MOST_KEYS else f"{x}[..., :{MOST_KEYS}, :]"
    causal = ", is_causal=True" if scope.flag() else ""
    return f"{functional}.scaled_dot_product_attention({few}, {few}, {few}{causal})"


def _bins(scope: Scope) -> str:
    """Return a sum of all elements into a few."""
    x = scope.operand(Want("fhi", 1, nonempty=True))
    index = scope.indices((x.tensor.numel(),), BINS)
    zeros = f"torch.zeros({BINS}, dtype={x.tensor.dtype}, device={x}.device)"
    return f"torch.index_add({zeros}, 0, {index}, {x}.reshape(-1))"


def _outer(scope: Scope) -> str:
    x = scope.operand(Want("fh", 1, 1, nonempty=True))
    return f"{shortened(scope, x)}.unsqueeze(1) * {x}"


MATRIX = Want("fhi", 2, nonempty=True)

BOUNDED = "torch.nan_to_num({x}).clamp(-200, 200)"

GPU = (
    Row("matmul_half", _matmul),
    Row("linear_half", _linear),
    Row("attention_half", _attention),
    Row("transposed_copy", of_one("{x}.mT.contiguous()", Want("fhib", 2)), exact=True),
    Row("transposed_sum", of_one("({x}.mT.contiguous() * 2).mT + {x}", MATRIX)),
    Row("sums_of_both", of_one("{x}.sum(-1, keepdim=True) + {x}.sum(-2, keepdim=True)", MATRIX)),
    Row("sum_in_float32", over_dims("sum", Want(HALF), "dtype=torch.float32")),
    Row("rms_norm", of_one(  # eager: a row with an infinity is NaN in float32 only
        f"{functional}.rms_norm({BOUNDED}, {{x}}.shape[-1:])",
        Want("fh", 1, nonempty=True))),
    Row("centred", of_one("{x} - {x}.mean(-1, keepdim=True)", Want("fh", 1, nonempty=True))),
    Row("bins", _bins),
    Row("outer", _outer),
    Row("float8", of_one(
        f"{BOUNDED}.to(torch.float8_e4m3fn).to({{x}}.dtype)", Want("fh"))),
    Row("interleaved", of_one("torch.stack(({x}, {x} + 1), -1).flatten(-2)", Want("fhi", 1))),
)  # fmt: skip
