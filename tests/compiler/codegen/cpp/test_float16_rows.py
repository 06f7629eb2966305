"""codegen.float16_rows: neighbouring float16 numbers are converted in vectors, outside of loops."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpp_kernels
import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from half_programs import every_number, rounds_often, updates_what_it_read
from judge import assert_as_eager, compiled

from tcdebug.compiler.codegen.cpp.emitters.levels import DividedLoop, divided, needed_lines

HALF = torch.float16
X, Y = torch.randn(30, 131).to(HALF), torch.randn(30, 131).to(HALF)
ROW, COLUMN, PLACES = torch.randn(131).to(HALF), torch.randn(30, 1), torch.arange(30).flip(0)
EXTREME = (
    torch.tensor(
        [0.0, -0.0, 6e-8, -6e-8, 3e-5, 65504.0, -65504.0, float("inf"), -float("inf"), float("nan")]
    )
    .to(HALF)
    .repeat(3)
)

PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], tuple[int, int, int]]] = {
    # the function, its inputs, and how often numbers are read, rounded and stored in vectors
    "chain": (lambda x, y: (x * 0.3 + 1) * y, [X, Y], (2, 2, 1)),
    "extreme numbers": (lambda x: (x[:, None] * x + x) / 3, [EXTREME], (2, 4, 2)),
    "a float32 result beside it": (lambda x, y: (x * y, (x * y).float()), [X, Y], (2, 1, 1)),
    "two types": (lambda x, y, m: torch.where(m, x * y, -x), [X, Y, Y > 0], (2, 0, 1)),
    "softmax": (lambda x: (x * 0.3).softmax(1), [X], (4, 4, 1)),
    "columns": (lambda x: x - (x * 0.3).mean(0), [X], (2, 2, 1)),
    "scan": (lambda x, w: (x.tanh().cumsum(1) * w).exp(), [X, ROW], (2, 3, 1)),
    "part of a row": (lambda x: x[:, 3:20] * 0.7, [X], (1, 0, 1)),
    "every second": (lambda x: x[:, ::2] * 0.3, [X], (0, 0, 1)),
    "transposed rows": (lambda x: x.reshape(-1, 6).softmax(1), [X], (2, 0, 1)),
    "rows from anywhere": (lambda x, i: x[i] * 0.3, [X, PLACES], (1, 0, 1)),
    "nothing but a copy": (lambda x: x.t().contiguous(), [X], (0, 0, 0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_neighbours_in_float16_are_converted_in_vectors(name: str, tmp_path: Path) -> None:
    function, inputs, expected = PROGRAMS[name]
    torch._dynamo.reset()
    text = kernels_as_eager(function, inputs)
    found = tuple(text.count(f"  {verb}(") for verb in ("widen", "round_all", "narrow"))
    assert found == expected
    if name in ("chain", "softmax"):
        assert scalar_loops(text, tmp_path) == []


def test_all_numbers_are_those_of_eager() -> None:
    torch._dynamo.reset()
    assert "  round_all(" in kernels_as_eager(rounds_often, every_number(HALF), exact=True)


def test_an_update_in_place_reads_what_it_overwrites_first() -> None:
    torch._dynamo.reset()
    assert "  narrow(" in kernels_as_eager(updates_what_it_read, [X.clone(), Y], exact=True)


@pytest.mark.parametrize("length", [255, 256, 257, 320, 512, 1001])
def test_a_row_is_converted_in_groups_that_may_overlap(length: int) -> None:
    """An update would read what the group before it has stored, so its groups do not overlap."""
    torch._dynamo.reset()
    x, y = (torch.randn(2, length) * 3).to(HALF)
    text = kernels_as_eager(lambda x, y: (x + y).relu() * 0.3, [x, y], exact=True)
    assert ("[TCD_GROUP]" in text) == (length >= 256)
    assert ("_group" in text) == (length >= 256 and length % 256 != 0)
    torch._dynamo.reset()
    updated = kernels_as_eager(lambda x, y: x.mul_(y), [x.clone(), y], exact=True)
    assert ("[TCD_GROUP]" in updated) == (length >= 256 and length % 256 == 0)


def test_without_the_unit_conversions_are_in_the_loop() -> None:
    text = kernels(PROGRAMS["chain"][0], X, Y, off=("codegen.float16_rows",))
    assert "  widen(" not in text
    assert "from_float16(" in text


def test_rows_of_dynamic_length_are_converted_in_vectors() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.3 + 1).sum(1)

    fast = compiled(function, dynamic=True)
    for length in (1, 15, 16, 17, 300, 1100):
        assert_as_eager(fast, function, [torch.randn(3, length).to(HALF)])


def loops_of(*lines: str) -> list[DividedLoop] | None:
    """The loops that stand for one with some lines."""
    division = divided(needed_lines(lines) or [], "l")
    return division and division[1]


def test_a_loop_ends_where_a_value_is_rounded() -> None:
    assert loops_of(
        "const int64_t x = from + l;",
        "const float t1 = in[x];",
        "const float t2 = t1 * 3.0f;",
        "const float t3 = round_to_float16(t2);",
        "const bool t4 = t1 > 0.5f;",
        "out[x] = t4 ? t3 : t1;",
    ) == [
        DividedLoop(
            (
                "const int64_t x = from + l;",
                "const float t1 = in[x];",
                "at_t1[l] = t1;",
                "const float t2 = t1 * 3.0f;",
                "at_t3[l] = t2;",
                "const bool t4 = t1 > 0.5f;",
                "at_t4[l] = t4;",
            ),
            ("t3",),
        ),
        DividedLoop(
            (
                "const float t1 = at_t1[l];",
                "const float t3 = at_t3[l];",
                "const bool t4 = at_t4[l] != 0;",
                "const int64_t x = from + l;",
                "out[x] = t4 ? t3 : t1;",
            ),
            (),
        ),
    ]


def test_what_reads_and_changes_a_sum_stays_in_one_loop() -> None:
    rounding = "const float t2 = round_to_float16(t1);"
    assert loops_of("const float t1 = in[l];", rounding, "sum[l] += t1;", "sum[l] += t2;") == [
        DividedLoop(("const float t1 = in[l];", "at_t1[l] = t1;", "at_t2[l] = t1;"), ("t2",)),
        DividedLoop(
            (
                "const float t1 = at_t1[l];",
                "sum[l] += t1;",
                "const float t2 = at_t2[l];",
                "sum[l] += t2;",
            ),
            (),
        ),
    ]
    before = "const float t0 = best[l];"
    line = "best[l] = t2 > best[l] ? t2 : t0;"
    assert loops_of(before, "const float t1 = in[l];", rounding, line) is None
    assert loops_of("const float t1 = in[l];", rounding, "float t3;", "out[l] = t2;") is None


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_a_scan_of_float16_converts_numbers_in_loops_of_their_own(
    name: str, tmp_path: Path
) -> None:
    def function(x: torch.Tensor) -> Any:
        return getattr(torch, name)(x, 1)

    torch._dynamo.reset()
    text = kernels_as_eager(function, [torch.rand(40, 300).half()])
    assert "widen(" in text
    assert "narrow(" in text
    assert scalar_loops(text, tmp_path) == []


SCANS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "largest so far": lambda x, dim: tuple(x.cummax(dim)),
    "smallest so far": lambda x, dim: tuple(x.cummin(dim)),
    "sum": lambda x, dim: x.cumsum(dim),
    "product": lambda x, dim: x.cumprod(dim),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("halves", [torch.float16, torch.bfloat16], ids=str)
def test_a_scan_of_what_is_rounded_has_the_states_after_each_step(
    name: str, dim: int, halves: torch.dtype
) -> None:
    def function(x: torch.Tensor) -> Any:
        rounded = (x * 3 + 0.25) / 3.7
        return rounded, SCANS[name](rounded, dim)

    torch._dynamo.reset()
    x = torch.randn(6, 40, 33, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    exact = name.endswith("so far")
    assert_as_eager(compiled(function), function, [x.to(halves)], exact=exact)


def test_the_text_of_a_kernel_does_not_depend_on_the_seed_of_hashes(tmp_path: Path) -> None:
    """Kernels are cached by their text, and a search repeats decisions in other processes."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        f"sys.path.insert(0, {str(Path(cpp_kernels.__file__).parent)!r})\n"
        "from cpp_kernels import kernels\n"
        "def chain(x, y):\n"
        "    z = torch.where(x > y, x.relu(), y * 0.5)\n"
        "    z = torch.where(z > y, z.relu(), y * 0.5)\n"
        "    z = torch.nn.functional.gelu(z)\n"
        "    return (z - z.mean(-1, keepdim=True)).sum(0)\n"
        "print(kernels(chain, *torch.ones(2, 4096, 64).half()))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
