"""Views and rearrangements: strides, slices, reshapes that copy, concatenation, splits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.strategies.row import Draw, Row, of_one, with_dim
from tcdebug.strategies.scope import Scope, Want

ANY = "fhibc"
SOME = Want(ANY, 1)


def _permute(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 2))
    left = list(range(x.tensor.dim()))
    order = [left.pop(scope.integer(0, len(left) - 1)) for _ in range(x.tensor.dim())]
    return f"{x}.permute({', '.join(map(str, order))})"


def _slice(scope: Scope) -> str:
    x = scope.operand(SOME)
    before = ":, " * scope.integer(0, x.tensor.dim() - 1)
    return f"{x}[{before}{scope.choose(('1:', ':-1', '::2', ':2', '-2:', '1::2', ':0'))}]"


def _select(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 1, nonempty=True))
    return f"{x}.select({scope.dim(x)}, {scope.choose((0, -1))})"


def _expand(scope: Scope) -> str:
    """Return a view that repeats elements.

    Through a view that repeats none, AOTAutograd writes wrong values for large numbers
    (`expanded_update.py` of the findings).
    """
    small = Want(ANY, 0, 3, accept=lambda t: t.numel() * 3 <= scope.most_elements)
    x = scope.operand(small)
    place = scope.integer(0, x.tensor.dim())
    sizes = ["-1"] * x.tensor.dim()
    sizes.insert(place, scope.choose(("2", "3")))
    return f"{x}.unsqueeze({place}).expand({', '.join(sizes)})"


def _reshape(scope: Scope) -> str:
    """Return a reshape that merges dimensions or splits one, with a copy if it needs one."""
    x = scope.operand(SOME)
    shape = x.tensor.shape
    if scope.flag() and shape[-1] and shape[-1] % 2 == 0:
        return f"{x}.unflatten(-1, (2, {scope.choose((-1, shape[-1] // 2))}))"
    first = scope.integer(0, len(shape) - 1)
    return f"{x}.flatten({first}, {scope.integer(first, len(shape) - 1)})"


def _view(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 1, nonempty=True, plain=True))
    return f"{x}.view({scope.choose(('-1', '1, -1', '-1, 1'))})"


def _as_strided(scope: Scope) -> str:
    """Return a view of elements in the memory of the operand, some of them twice."""
    x = scope.operand(Want(ANY, 1, plain=True, accept=lambda t: t.numel() >= 4))
    if x.tensor.numel() < 4:
        return f"{x}.clone()"
    sizes, strides = scope.choose((((2,), (1,)), ((2, 2), (1, 2)), ((2, 2), (1, 1)), ((3,), (0,))))
    offset = x.tensor.storage_offset()
    shift = "" if offset == 0 else f", {offset}"
    source = f"{x}.detach()" if _overlap(strides) and x.tensor.requires_grad else f"{x}"
    return f"{source}.as_strided({sizes}, {strides}{shift})"


def _overlap(strides: tuple[int, ...]) -> bool:
    """Return whether some elements are read twice. AOTAutograd gives a different gradient for them.

    See docs/findings/overlapping_gradient.py.
    """
    return strides not in ((1,), (1, 2))


MOST_PARTS = 64
"""A split into thousands of parts takes a minute to trace, with any backend."""


def _part(template: str) -> Draw:
    """Return one of the parts into which a tensor is split."""
    few = Want(ANY, 1, nonempty=True, accept=lambda t: max(t.shape) <= MOST_PARTS)

    def draw(scope: Scope) -> str:
        x = scope.operand(few)
        dim, place = scope.dim(x), scope.choose((0, -1))
        if x.tensor.shape[dim] > MOST_PARTS:
            return f"{x}.chunk(2, {dim})[{place}]"
        return template.format(x=x, dim=dim, place=place)

    return draw


def _roll(scope: Scope) -> str:
    x = scope.operand(SOME)
    return f"{x}.roll({scope.choose((1, -1, 2))}, {scope.dim(x)})"


def _flip(scope: Scope) -> str:
    x = scope.operand(SOME)
    return f"{x}.flip({scope.dims(x)})"


def _but(sizes: Sequence[int], dim: int) -> list[int]:
    """Return the sizes of the other dimensions."""
    return [n for k, n in enumerate(sizes) if k != dim % len(sizes)]


def _cat(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 1, accept=lambda t: t.numel() * 3 <= scope.most_elements))
    dim = scope.dim(x)
    shape = x.tensor.shape

    def joins(tensor: torch.Tensor) -> bool:
        other = list(tensor.shape)
        return len(other) == len(shape) and other[dim] > 0 and _but(other, dim) == _but(shape, dim)

    known = [v for v in reversed(scope.values) if joins(v.tensor)][:4] or [x]
    y = known[scope.integer(0, len(known) - 1)]
    scope.operands.append(y)
    return f"torch.cat(({x}, {y}), {dim})"


def _stack(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 0, 3, accept=lambda t: t.numel() * 2 <= scope.most_elements))
    return f"torch.stack(({x}, {scope.alike(x)}), {scope.integer(0, x.tensor.dim())})"


def _pad(scope: Scope) -> str:
    x = scope.operand(Want("fhi", 1))
    before, after = scope.choose(((1, 0), (0, 1), (2, 1), (-1, 2)))
    before = before if x.tensor.shape[-1] else 0
    number = scope.choose((0, 1, -1)) if x.tensor.dtype.is_floating_point else 0
    return f"torch.nn.functional.pad({x}, ({before}, {after}), value={number})"


def _repeat(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 1, 3, accept=lambda t: t.numel() * 6 <= scope.most_elements))
    counts = ", ".join(str(scope.choose((1, 2))) for _ in range(x.tensor.dim()))
    return f"{x}.repeat({counts})"


def _unfold(scope: Scope) -> str:
    x = scope.operand(Want(ANY, 1, 3, nonempty=True))
    return f"{x}.unfold({scope.dim(x)}, 1, {scope.choose((1, 2))})"


VIEWS = (
    Row("permute", _permute),
    Row("transpose", of_one("{x}.transpose(0, -1)", Want(ANY, 1))),
    Row("slice", _slice),
    Row("select", _select),
    Row("unsqueeze", of_one("{x}.unsqueeze(-1)", Want(ANY, 0, 3))),
    Row("squeeze", of_one("{x}.squeeze()", Want(ANY))),
    Row("expand", _expand),
    Row("reshape", _reshape),
    Row("view", _view),
    Row("as_strided", _as_strided),
    Row("split", _part("{x}.split(1, {dim})[{place}]")),
    Row("chunk", _part("{x}.chunk(2, {dim})[{place}]")),
    Row("unbind", _part("{x}.unbind({dim})[{place}]")),
    Row("diagonal", of_one("{x}.diagonal(0, -2, -1)", Want(ANY, 2))),
    Row("unfold", _unfold),
    Row("clone", of_one("{x}.clone()", Want(ANY))),
    Row("contiguous", of_one("{x}.contiguous()", Want(ANY))),
    Row("detach", of_one("{x}.detach()", Want(ANY))),
    Row("flip", _flip),
    Row("roll", _roll),
    Row("cat", _cat),
    Row("stack", _stack),
    Row("pad", _pad),
    Row("repeat", _repeat),
    Row("tril", of_one("torch.tril({x})", Want(ANY, 2))),
    Row("triu", of_one("torch.triu({x}, 1)", Want(ANY, 2))),
    Row("swapped", with_dim("{x}.movedim({dim}, 0)", Want(ANY, 1))),
)
"""Operations that do not round."""
