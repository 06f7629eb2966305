"""The configurations of a Triton kernel under the gate, on a machine without a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets.inductor.triton_compile import triton_compile

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

META = {"kernel_name": "triton_poi_fused_sin_0"}


def tuned(off: list[str], *configs: Any, **meta: Any) -> tuple[list[str], list[Any]]:
    """The units that a kernel asks about, and the configurations that are left."""
    import triton  # noqa: PLC0415 - it may be missing
    from torch._inductor.runtime import triton_heuristics  # noqa: PLC0415 - it imports triton
    from torch._inductor.runtime.hints import DeviceProperties  # noqa: PLC0415 - the same

    def kernel(x: Any) -> None: ...

    gate = Gate(Toggles.parse(off))
    device = DeviceProperties("cuda", 0, 132, 90, None, 65536, 2048, 48, 32)
    with triton_compile(gate, EventLog(None)):
        made = triton_heuristics.CachingAutotuner(
            triton.JITFunction(kernel), {"device": device, "signature": {}, "constants": {}},
            configs=list(configs), save_cache_hook=None, mutated_arg_names=[], optimize_mem=False,
            heuristic_type=triton_heuristics.HeuristicType.POINTWISE,
            inductor_meta={**META, **meta},
        )  # fmt: skip
    left = [(dict(c.kwargs), c.num_warps) for c in made.configs or []]
    return [d.unit for d in gate.decisions], left


def config(warps: int, **blocks: int) -> Any:
    import triton  # noqa: PLC0415 - it may be missing

    return triton.Config(blocks, num_warps=warps, num_stages=1)


WIDE, NARROW = ({"XBLOCK": 1024}, 4), ({"XBLOCK": 512}, 8)
BOTH = ["codegen.block_size", "codegen.autotune"]


def test_a_choice_of_configurations_is_asked_about_after_their_blocks() -> None:
    """With small blocks there is no choice. A fault of the choice must not end at the blocks."""
    given = config(4, XBLOCK=1024), config(8, XBLOCK=512)
    assert tuned([], *given) == (BOTH, [WIDE, NARROW])
    assert tuned(["codegen.autotune"], *given) == (BOTH, [WIDE])
    assert tuned(["codegen.block_size"], *given) == (BOTH[:1], [({"XBLOCK": 32}, 1)])


def test_blocks_of_several_dimensions_keep_the_size_of_their_grid() -> None:
    _, left = tuned(["codegen.block_size"], config(4, XBLOCK=64, YBLOCK=16))
    assert left == [({"XBLOCK": 64, "YBLOCK": 16}, 1)]
    _, left = tuned(["codegen.block_size"], config(8, XBLOCK=8, R0_BLOCK=2048))
    assert left == [({"XBLOCK": 8, "R0_BLOCK": 32}, 1)]


@pytest.mark.parametrize(
    ("blocks", "meta"),
    [
        ({"XBLOCK": 64, "RSPLIT": 8}, {}),
        ({"XBLOCK": 1024}, {"tma_min_block_sizes": {"XBLOCK": 16}}),
        ({"XBLOCK": 1024}, {"combo_grid_meta": {"num_kernels": 2}}),
        ({}, {}),
    ],
)
def test_blocks_that_other_choices_depend_on_are_not_asked_about(
    blocks: dict[str, int], meta: dict[str, Any]
) -> None:
    assert tuned(["codegen.block_size"], config(4, **blocks), **meta) == ([], [(blocks, 4)])
