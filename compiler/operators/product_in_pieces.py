"""tcdebug::product_in_pieces: a product of which columns are left out, some rows at a time.

What cuBLAS writes for a piece is half in the GPU's cache when it is copied, and there is no second
tensor as large as the result.
"""

from __future__ import annotations

from functools import cache

import torch

from tcdebug.compiler.operators.library import register

PIECE = 1 << 26
"""Bytes of a piece. On an H200 all of BERT's logits take 0.86 ms, 1.25 in pieces of half the bytes,
for which the host is too slow, and 0.81 as a whole, which takes as much memory again."""
ROWS = 128
"""Of a piece, a multiple: those of a block of cuBLAS."""
SCHEMA = (
    "product_in_pieces(Tensor left, Tensor right, Tensor? bias, int rows, int columns) -> Tensor"
)


@cache
def product_in_pieces() -> torch._ops.OpOverload:
    """The first rows and columns of `left @ right`, plus `bias` for each row, rows contiguous.

    Registered with torch when it is first asked for.
    """
    operator: torch._ops.OpOverload = register(SCHEMA, _product, _fake)
    return operator


def rows_of_a_piece(right: torch.Tensor) -> int:
    """How many rows of a product with this operand are computed at a time."""
    return max(1, PIECE // (right.shape[1] * right.element_size() * ROWS)) * ROWS


def _product(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, rows: int, columns: int
) -> torch.Tensor:
    result = left.new_empty(rows, columns)
    step = rows_of_a_piece(right)
    for start in range(0, rows, step):
        part = left[start : min(start + step, rows)]
        _crop(_piece(part, right, bias), result[start : start + step])  # no name: one at a time
    return result


def _piece(part: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return part @ right if bias is None else torch.addmm(bias, part, right)


def _crop(piece: torch.Tensor, result: torch.Tensor) -> None:
    if not piece.is_cuda:
        result.copy_(piece[:, : result.shape[1]])
        return
    from tcdebug.compiler.operators.crop import crop  # noqa: PLC0415 # start-up time: Triton

    crop(piece, result)


def _fake(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, rows: int, columns: int
) -> torch.Tensor:
    return left.new_empty(rows, columns)
