"""tcdebug::product_in_pieces: a matrix product without its last columns, some rows at a time.

About half of a piece is still in the GPU's cache when it is copied, and no second tensor of the
size of the result is needed.
"""

from __future__ import annotations

from functools import cache

import torch

from tcdebug.compiler.operators.library import register

PIECE = 1 << 26
"""Bytes of a piece. On an H200, BERT's logits take 0.86 ms with this size. They take 1.25 ms in
pieces of half the size, for which the host is too slow, and 0.81 ms as a whole, which needs twice
the memory."""
ROWS = 128
"""The rows of a piece are a multiple of this, the rows of a block of cuBLAS."""
SCHEMA = (
    "product_in_pieces(Tensor left, Tensor right, Tensor? bias, int rows, int columns) -> Tensor"
)


@cache
def product_in_pieces() -> torch._ops.OpOverload:
    """Return the operator for the first rows and columns of `left @ right + bias`, row-major.

    `bias` is broadcast over rows. The first call registers the operator with torch.
    """
    operator: torch._ops.OpOverload = register(SCHEMA, _product, _fake)
    return operator


def rows_of_a_piece(right: torch.Tensor) -> int:
    """Return how many rows of a product with this operand are computed at a time."""
    return max(1, PIECE // (right.shape[1] * right.element_size() * ROWS)) * ROWS


def _product(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, rows: int, columns: int
) -> torch.Tensor:
    result = left.new_empty(rows, columns)
    step = rows_of_a_piece(right)
    for start in range(0, rows, step):
        part = left[start : min(start + step, rows)]
        _crop(_piece(part, right, bias), result[start : start + step])  # frees each piece at once
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
