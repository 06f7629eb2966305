"""Runs programs with their kernels in Triton's interpreter and prints differences from eager.

TRITON_INTERPRET=1 python interpret_programs.py

The default tests run a sixth of them; `interpret_all_programs.py` runs all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from interpreted import install
from torch.utils._pytree import tree_leaves

from tcdebug.compiler.lower.indexing import sorting
from tcdebug.compiler.operators.philox import random_bits
from tcdebug.compiler.schedule import combo_kernels, in_place
from tcdebug.compiler.schedule.fusing import scans, scatters
from tcdebug.compiler.schedule.inlining import between_kernels, recompute
from tcdebug.compiler.schedule.splitting import pieces, split_reduction, split_scan

INF = float("inf")
LOOPED = ("codegen.persistent",)
HALVES = torch.tensor([0.0, -0.0, 1.0, INF, float("nan"), 6e-8, 65504.0, -3.0])
RESIZED = (*LOOPED, "fuse.combo")
"""The tile of a kernel in a combo is part of the code of the combo."""
TAKEN = {"running extremes in loops": 32}
"""Elements of a row per step. The interpreter scans one by one: 10,000 elements take 20 seconds."""
IN_PIECES = 64
"""Elements of a piece, for programs whose name says that they have short ones."""
Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[str, ...]]


def rows(length: int) -> torch.Tensor:
    """Rows with infinities, with only infinities, with a NaN, and without special values."""
    x = torch.randn(6, length) * 30
    x[0, 5], x[1, 7], x[2], x[3, length - 1] = INF, -INF, -INF, float("nan")
    x[4, ::2] = -INF
    return x


def repeated(*size: int) -> torch.Tensor:
    """Few different values, among them zeros of both signs and a NaN."""
    x = torch.randint(-3, 3, size) * 0.5
    x[1, size[1] // 2], x[2, ::2] = float("nan"), -INF
    return torch.where((x == 0) & (torch.rand(size) > 0.5), -x, x)


def scattered(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Any:
    """Scatters that sum, also in doubles and integers. The order does not matter."""
    row = i[:, 0]
    return (
        x.scatter_add(0, i, y),
        x.double().index_add(0, row, y.double()),
        x.index_put((row,), y[:1]),
        (x * 9).int().scatter_reduce(0, i, (y * 9).int(), "amax"),
        torch.nn.functional.embedding(row, x, padding_idx=2),
        torch.ops.aten.embedding_dense_backward(y, row, 6, 2, False),
        x.scatter_reduce(0, i, y, "mean", include_self=False),
    )


def scattered_together(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    """Sums for two ends of each edge, from what both read."""
    sums = x.new_zeros(9, 6)
    message = (x * y).sin()
    first, second = (sums.index_put((k,), message * s, True) for k, s in ((i, 2.0), (j, -3.0)))
    return first + second, sums.index_put((i,), x, True), sums.index_add(0, i, x * 0.5)


def running(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Cumulative maximum, minimum and logarithm of sums."""
    return x.cummax(1), x.cummin(1), (x > 0).cummax(1), y.logcumsumexp(1), x.logcumsumexp(1)


def in_pieces() -> dict[str, Program]:
    """Programs with few long rows, which short pieces divide among many programs of a GPU."""
    r = torch.randn
    tall = repeated(1003, 5)
    tall[:, 3], tall[7, 4] = -INF, float("nan")
    return {
        "short pieces of rows": (
            lambda x: (x.cumsum(1), (x > 0).cumsum(1), x.half().cumsum(1)),
            (r(3, 1003).double(),),
            (),
        ),
        "short pieces of columns": (
            lambda x, y: (x.cumsum(0), (y * 0.01 + 1).cumprod(0), x.amax(0), y.sum(0)),
            (r(1003, 5).double(), r(1024, 3).double()),
            (),
        ),
        "short pieces of places": (
            lambda x: (x.max(0), x.argmin(0), x.argmax(), (x * 3 + 1).argmax(0)),
            (tall,),
            (),
        ),
        "short pieces of softmax and of variances": (
            lambda x, y: (x.softmax(0), torch.var_mean(x + 9, 0), y.var(), y.softmax(0), y.std(0)),
            (r(1003, 5), r(1024, 3).double()),
            (),
        ),
        "short pieces of exponentials": (
            lambda x, y: (x.logsumexp(1), x.softmax(1), x.logsumexp(0), y.exp().logsumexp(0)),
            (rows(1003), r(2003, 3)),
            (),
        ),
        "short pieces of variances, combined in two steps": (
            lambda x, y, z: (torch.var_mean(x, 0), y.std(0), z.var(), z.var((0, 2))),
            (r(2003, 3), r(1024, 70).double(), r(30, 4, 31)),
            (),
        ),
        "short pieces of permuted and sliced memory": (
            lambda x, y: (x.sum(), x.sum(1), y[:, ::2].sum(0), torch.var_mean(y[..., ::3], (0, 1))),
            (r(8, 20, 31).double().permute(2, 1, 0), r(40, 30, 18).double()),
            (),
        ),
    }


def windows(x: torch.Tensor, y: torch.Tensor) -> Any:
    """The elements of windows as columns, and sums of windows."""
    return (
        F.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1)),
        F.unfold(x, 3, dilation=2, padding=2),
        F.fold(y, (9, 8), (3, 2), padding=(1, 0), stride=(2, 1)),
        F.fold(y[:, :, :4], (7, 7), (3, 2), stride=(4, 5)),
    )


def scans_and_reductions(x: torch.Tensor) -> Any:
    """What one kernel computes of a row: sums of running sums, and running sums of a softmax."""
    running = x.cumsum(1)
    return (
        running.softmax(1),
        running.cumsum(1),
        running.mean(),
        x.softmax(1).cumsum(1) * 2,
        (x - x.mean(1, keepdim=True)).cumsum(1),
        x.cummax(1).values.sum(1),
        running / running.norm(dim=0),
    )


def normed_sum(x: torch.Tensor, y: torch.Tensor) -> Any:
    """What is stored over a product in the first of two sweeps."""
    total = x @ y + x
    return F.rms_norm(total, (64,)), total


def recomputed(x: torch.Tensor) -> Any:
    """Quotients that two kernels compute: to find the largest of a column, and to count those."""
    quotient = x / (x.abs().amax(-1, keepdim=True) + 1)
    largest = quotient.amax(0)
    return largest, (quotient == largest).sum(-1)


def after_rows(x: torch.Tensor) -> Any:
    """Sums of columns, and rows in another order, of what a kernel of rows would store."""
    rows = x.softmax(1).tanh()
    turned = rows.roll(1, 0) - rows.mean(1, keepdim=True)
    x.add_(1)
    return (rows - rows.mean(0)).abs().sum(0), turned, rows.sum()


def short_rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Reductions of five elements that lie apart, and of two by three."""
    positive = x > 0
    return (
        (
            x.softmax(1),
            x.logsumexp(1),
            torch.var_mean(x.clamp(-9, 9), 1),
            x.prod(1),
            positive.sum(1),
        ),
        (x.argmax(1), x.argmin(1), (x + 0.25).max(1), (positive.any(1), positive.all(1))),
        (y.bfloat16().amax(-1), y.mean(-1), y.half().sum((1, 3)), (y * 9).int().amin((1, 3))),
    )


def variances(x: torch.Tensor, y: torch.Tensor, special: torch.Tensor) -> Any:
    """Rows, columns, rows far from 0, rows with infinities, and rows that are read again."""
    return (
        (x.var(1), y.std(0), y[:-3].double().var(0), x[:, 3:2903].bfloat16().var(1)),
        (torch.var_mean(x + 1e3, 1), special.var(1), special[4:, 1::2].var(1)),
        F.layer_norm(x, (x.shape[1],)),
    )


def along_two_axes(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Loads with neighbours along one outer axis, and stores along another."""
    return (
        (x.log_softmax(1), x.logsumexp(1), x.cumsum(1), x.argmax(1)),
        (y.sum(2), y.bfloat16().amax(2), (y - y.amax(2, keepdim=True)).contiguous()),
    )


def sorts(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Sorts of rows and columns, with equal elements, both zeros and NaN among them."""
    return (
        torch.sort(x, dim=-1, stable=True),
        y.gather(-1, torch.sort(x, dim=-1, descending=True, stable=True)[1]) * 2,
        torch.sort((x.nan_to_num() * 2).int(), dim=0, descending=True, stable=True),
        torch.sort(x.half(), dim=-1)[0] + 1,
        (x > 0).msort(),
    )


def reduced_sorts(x: torch.Tensor, y: torch.Tensor) -> Any:
    """What one kernel computes of a sorted row, of its order, and of elements in that order."""
    order = torch.sort(x, dim=-1, stable=True)[1]
    ordered = y.gather(-1, order) * 2
    down = torch.sort(x.nan_to_num(), dim=-1, descending=True, stable=True)[0]
    return ordered.max(-1), order.argmin(-1), down.diff().amax(-1), down.square().mean(-1), down


def updates(*given: torch.Tensor) -> Any:
    """A step of an optimizer over a list of tensors, of which two have the same size."""
    count = len(given) // 4
    x, y, z, steps = (list(given[k * count : (k + 1) * count]) for k in range(4))
    torch._foreach_add_(steps, 1)
    torch._foreach_lerp_(y, z, 0.1)
    scales = torch._foreach_pow(0.9, steps)
    torch._foreach_addcdiv_(x, y, torch._foreach_add(torch._foreach_abs(z), 1), value=-0.1)
    torch._foreach_mul_(x, scales)
    return torch._foreach_norm(z), torch._foreach_clamp_min(x, 0.5)


def lists(*sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Three lists of tensors of these sizes, and numbers of steps."""
    found = [torch.randn(size) for _ in range(3) for size in sizes]
    return (*found, *(torch.tensor(float(k)) for k in range(len(sizes))))


def chains(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    """Independent chains of kernels, whose results die while others of the same size are made."""
    found = [(v.softmax(-1) @ w).exp().cumsum(-1).sum(-1) for v, w in ((x, a), (y, b), (x + 1, b))]
    return [v.sort().values for v in found]


def combined() -> dict[str, Program]:
    """Programs with kernels that do not depend on each other."""
    r = torch.randn
    ragged, multiples = ((7, 9), (300,), (7, 9), (1,)), ((2, 64), (16, 64), (2, 64), (8, 64))
    return {
        "updates of a list": (updates, lists(*ragged), ()),
        "updates of a list with copies": (updates, lists(*ragged), ("lower.aten.copy_.default",)),
        "updates of whole tiles": (updates, lists(*multiples), ()),
        "chains that do not depend on each other": (
            chains,
            (r(9, 9), r(9, 9), r(9, 9), r(9, 9)),
            (),
        ),
        "sums of several tensors": (
            lambda x, y, z: (x.sum(-1), y.softmax(-1), z.amax(), (x * 2).sum(0), y[2:5] + 1),
            (r(9, 40), r(7, 300), r(2, 5)),
            (),
        ),
    }


def programs() -> dict[str, Program]:
    """Name -> function, inputs, units that are off."""
    r = torch.randn
    sizes = torch.tensor([1e-40, 1e-30, 1.0, 1e30, 3e38, 0.0])[:, None]
    return {
        "pointwise": (lambda x, y: (x + y).relu() - torch.sigmoid(x), (r(33, 17), r(33, 17)), ()),
        "gelu": (
            lambda x: F.gelu(x) + x.erf(),
            (torch.tensor([*torch.linspace(-12, 12, 301).tolist(), -INF, float("nan")]),),
            (),
        ),
        "softmax": (lambda x: torch.softmax(x, -1), (rows(100),), ()),
        "over what dies": (
            lambda x: (F.gelu(x @ x), (x @ x.t()).softmax(-1), (x @ x).exp().sum(0)),
            (r(40, 40),),
            (),
        ),
        "over what dies, and read again": (normed_sum, (r(32, 64), r(64, 64)), ()),
        "over what dies, and read again in loops": (normed_sum, (r(32, 64), r(64, 64)), LOOPED),
        "over what dies in loops": (lambda x, y: (x @ y).softmax(-1), (r(5, 7), r(7, 901)), LOOPED),
        "softmax in loops": (lambda x: torch.softmax(x, -1), (rows(100),), LOOPED),
        "log softmax in loops": (lambda x: torch.log_softmax(x, -1), (r(5, 3001),), LOOPED),
        "logsumexp in loops": (
            lambda x, y: (x.logsumexp(-1), y.logsumexp(0)),
            (rows(100), rows(1031).t().contiguous()),
            LOOPED,
        ),
        "softmax of columns in loops": (
            lambda x: (x.softmax(0), x[:, :30].log_softmax(0)),
            (rows(1031).t().contiguous(),),
            LOOPED,
        ),
        "softmax twice": (
            lambda x, y: (torch.softmax(x, -1), torch.softmax(x * y, -1)),
            (r(5, 70), r(5, 70)),
            LOOPED,
        ),
        "division of rows": (
            lambda x: (x / x.amax(-1, keepdim=True), x / x.amin(-1, keepdim=True)),
            (sizes * r(6, 65),),
            (),
        ),
        "quotients of half types": (
            lambda x: (x / x.t(), x / x[:1], (x / x.t()).bfloat16() / x.bfloat16()),
            (HALVES.repeat(8, 1).half(),),
            (),
        ),
        "layer norm": (lambda x, w: F.layer_norm(x, (64,), w), (r(10, 64), r(64)), ()),
        "layer norm in loops": (lambda x: F.layer_norm(x, (640,)), (r(3, 640),), LOOPED),
        "sum of columns": (lambda x: x.sum(0), (r(300, 40),), ()),
        "sum of all, in pieces": (lambda x: (x * x).sum(), (r(501, 70),), ()),
        "mean of a softmax, in rows": (lambda x: x.log_softmax(-1).mean(), (r(98, 129),), ()),
        "sum of a norm, in rows": (
            lambda x: (F.rms_norm(x, (33,)) * x).sum(),
            (r(10, 13, 33),),
            LOOPED,
        ),
        "sum over two axes, in pieces": (lambda x: x.sum((0, 1)), (r(32, 197, 5),), ()),
        "short rows": (short_rows, (repeated(13, 5, 9), r(7, 2, 11, 3)), ()),
        "along two axes": (
            along_two_axes,
            (r(16, 11, 24).permute(2, 1, 0), r(17, 9, 2, 20).permute(3, 2, 1, 0)),
            (),
        ),
        "sorts": (sorts, (repeated(6, 37), r(6, 37)), ()),
        "reductions of sorted rows": (reduced_sorts, (repeated(6, 37), r(6, 37)), ()),
        "places": (lambda x: (x.argmax(-1), x.max(-1), x.argmin(0)), (r(12, 50),), ()),
        "places in loops": (lambda x: x.argmax(-1), (r(3, 5000),), LOOPED),
        "transpose": (lambda x, y: x.t() + y, (r(70, 90), r(90, 70)), ()),
        "cat and pad": (lambda x, y: F.pad(torch.cat([x, y], 1), (1, 2)), (r(5, 6), r(5, 7)), ()),
    }


def between(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Logarithms, and masks of them, are read by kernels of rows before and behind a mean."""
    high = (x.abs() + 1).log()
    largest = high == high.amax(1, keepdim=True)
    scaled = high / largest.sum(1, keepdim=True)
    return (largest * scaled.mean(0)).sum(1), (high - scaled.mean(0)).amax(1)


def stacked(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Functions beside each other along a new last axis, and numbers that are rotated in pairs."""
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((first * y - second * (y + 1), first * (y + 1) + second * y), -1)
    return (
        rotated.flatten(-2),
        torch.stack((first.sin(), y.expand_as(first), first * y, second), -1).exp(),
        torch.stack((first.bfloat16(), second.bfloat16()), -1) * 2,
        torch.cat((first.unsqueeze(-1), x.unflatten(-1, (-1, 2)).exp()), -1),
    )


def further_programs() -> dict[str, Program]:
    """Programs with indices, random bits, scans, integers and special values."""
    r, whole = torch.randn, torch.arange
    bits = random_bits()
    return {
        "sums of negative zeros": (
            lambda x: (x.sum(1), x[:1].sum(0), x.sum(), F.avg_pool1d(x, 2)),
            (torch.full((32, 64), -0.0),),
            (),
        ),
        "variances in loops": (variances, (r(5, 3001), r(640, 20), rows(1003)), LOOPED),
        "stacked along a new last axis": (stacked, (r(3, 70, 26), r(70, 13)), ()),
        "logarithms of bfloat16": (lambda x: (x.log(), x.abs().log()), (HALVES.bfloat16(),), ()),
        "index": (lambda x, i: x[i] * 2, (r(20, 6), torch.tensor([1, -1, 5])), ()),
        "random bits": (
            lambda seed: bits(seed, 2**40 + 3, [5, 70]),
            (torch.tensor(-12345678901),),
            (),
        ),
        "scattered": (scattered, (r(6, 5), r(9, 5), torch.randint(0, 6, (9, 5))), ()),
        "scattered together": (
            scattered_together,
            (r(70, 6), r(70, 6), torch.randint(0, 9, (70,)), torch.randint(-9, 9, (70,))),
            (),
        ),
        "scans and reductions": (scans_and_reductions, (r(7, 129).double(),), ()),
        "scans and reductions in loops": (scans_and_reductions, (r(3, 1100).double(),), LOOPED),
        "running sum": (lambda x: x.cumsum(-1), (r(5, 70),), ()),
        "running sum in loops": (lambda x: x.cumsum(-1), (r(3, 3000).double(),), LOOPED),
        "running extremes": (running, (repeated(3, 40), r(2, 70)), ()),
        "running extremes in loops": (running, (repeated(3, 70), r(2, 70)), RESIZED),
        "integers": (
            lambda x, y: (x // y, x % y, x << 1, x >> 1, x >> 99, x.to(torch.uint8) >> y, x > y),
            (whole(-5, 5), torch.tensor([3, -2] * 5)),
            (),
        ),
        "truth": (lambda x: ((x > 0).any(-1), (x > 0).all()), (r(5, 6),), ()),
        "nan": (
            lambda x: (x.amax(-1), x.clamp(0, 1), x.maximum(x.t())),
            (torch.tensor([[1.0, float("nan")], [2.0, 3.0]]),),
            (),
        ),
        "truth of nothing": (lambda x: ((x > 0).any(-1), (x > 0).all(-1)), (r(3, 0),), ()),
        "empty": (lambda x: (x + 1, x.sum(0)), (r(0, 6),), ()),
        "a number": (lambda x: x * 2 + 1, (torch.tensor(3.0),), ()),
        "in place": (lambda x, y: x.add_(y), (r(5, 6), r(5, 6)), ()),
        "windows": (windows, (r(2, 3, 9, 8), r(2, 18, 35)), ()),
        "rows along an outer axis": (
            lambda x: (x.softmax(1), x.logsumexp(1), x.cumsum(1)),
            (r(6, 37, 20).permute(2, 1, 0),),
            (),
        ),
        "rows between two outer axes": (
            lambda x, y: (x.cumsum(1), y + x.softmax(1), (x * 3).half().cumsum(1)),
            (r(24, 12, 40).permute(2, 1, 0), r(40, 12, 24)),
            (),
        ),
        "short odd rows": (
            lambda x: (x.sum(-1), x.argmax(-1), x.logsumexp(-1), x.var(-1), x.half().amax(-1)),
            (r(300, 7),),
            (),
        ),
        "recomputed quotients": (recomputed, (r(40, 56),), ()),
        "recomputed after rows": (after_rows, (r(70, 33),), ()),
        "recomputed between kernels": (between, (r(40, 56).double(),), ()),
        "doubles": (lambda x: x * 0.1 + 1e-300, (r(5, 6).double(),), ()),
        "zeros with a sign": (lambda x: (torch.where(x > 0, x, -0.0), -x), (r(5, 6),), ()),
    }


OF_GPUS = (
    between_kernels, combo_kernels, recompute, scans, scatters, sorting, split_reduction,
    split_scan,
)  # fmt: skip


def difference(program: Program, **options: Any) -> str:
    """The difference from eager in one line; empty if there is none."""
    function, given, off = program
    torch._dynamo.reset()
    expected_inputs, inputs = ([x.clone() for x in given] for _ in range(2))
    try:
        expected = function(*expected_inputs)
        options |= {"off": list(off)}
        compiled = torch.compile(function, backend="tcdebug", options=options)
        pairs = zip(
            tree_leaves((expected, expected_inputs)),
            tree_leaves((compiled(*inputs), inputs)),
            strict=True,
        )
        for wanted, got in pairs:
            exact = {"rtol": 2e-6, "atol": 3e-6} if wanted.dtype == torch.float32 else {}
            torch.testing.assert_close(got, wanted, equal_nan=True, **exact)
            zeros = (wanted == 0) & (got == 0)
            if not torch.equal(wanted[zeros].signbit(), got[zeros].signbit()):
                return "a zero has another sign"
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return ""


def main(step: int = 6) -> None:
    """A line for every `step`-th program: its name, and its difference from eager."""
    written = install()
    for unit in OF_GPUS:
        unit.DEVICES = ("cpu",)
    in_place.LOADS_STORED = ()
    usual = pieces.PIECE
    held = pieces.CACHE, pieces.CACHED, split_reduction.MANY
    torch.manual_seed(0)
    every = {**programs(), **further_programs(), **combined(), **in_pieces()}
    for name, program in list(every.items())[::step]:
        written.row = TAKEN.get(name)
        pieces.PIECE = IN_PIECES if name.startswith("short pieces") else usual
        steps = (0, IN_PIECES * 4, 16) if name.endswith("in two steps") else held
        pieces.CACHE, pieces.CACHED, split_reduction.MANY = steps
        wrong = difference(program)
        sys.stdout.write(f"{name}\t{len(written.sources)}\t{wrong}\n")
        written.sources.clear()


if __name__ == "__main__":
    main()
