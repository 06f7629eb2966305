"""The compiler with some parts replaced, and with a device that it does not know."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import f32
from torch import fx
from torch._functorch.partitioners import default_partition

import tcdebug
from tcdebug.compiler.configuration.options import BadOption
from tcdebug.compiler.devices import DEVICES

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "a_backend.py"


def compiled(function: Callable[..., Any], **parts: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=tcdebug.get_backend(**parts))


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(x) * 2


def test_a_backend_without_replaced_parts_is_the_compiler() -> None:
    torch.testing.assert_close(compiled(function)(f32(5)), function(f32(5)))


def test_a_custom_decomposition_is_used_and_can_be_switched_off() -> None:
    def wrong(x: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
        return x + 100

    table = {torch.ops.aten.softplus.default: wrong}
    x = f32(5)
    assert torch.equal(compiled(function, custom_decompositions=table)(x), (x + 100) * 2)
    torch._dynamo.reset()
    config = tcdebug.CompilerConfig(off=["decompose.aten.softplus.default"])
    kept = compiled(function, compiler_config=config, custom_decompositions=table)
    torch.testing.assert_close(kept(x), function(x))


def test_custom_compilers_and_a_custom_partition_are_called() -> None:
    asked: list[str] = []

    def compiler(name: str) -> Callable[..., Any]:
        def run(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            asked.append(name)
            return module.forward

        return run

    def partition(*args: Any, **kwargs: Any) -> Any:
        asked.append("partition")
        return default_partition(*args, **kwargs)

    names = ("fw_compiler", "bw_compiler", "inference_compiler")
    fast = compiled(function, **{n: compiler(n) for n in names}, partition_fn=partition)
    x = f32(5).requires_grad_()
    fast(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.sigmoid(x.detach()) * 2)
    with torch.no_grad():
        fast(x)
    assert asked == ["partition", "fw_compiler", "bw_compiler", "inference_compiler"]


def test_unknown_options_and_invalid_parts_are_errors_immediately() -> None:
    with pytest.raises(BadOption, match="no option 'cudagraph'; did you mean cudagraphs"):
        tcdebug.CompilerConfig(mode="reduce-overhead", cudagraph=True)
    with pytest.raises(BadOption, match="mode 'fast' is not one of default, reduce-overhead"):
        tcdebug.CompilerConfig(mode="fast")
    with pytest.raises(tcdebug.BadRegistration, match=r"not 'aten\.sin'"):
        tcdebug.get_backend(custom_decompositions={"aten.sin": lambda x: x})
    with pytest.raises(tcdebug.BadRegistration, match="must have refuses, write"):
        tcdebug.register_device("npu", object())
    assert "npu" not in DEVICES


def test_a_registered_device_computes_with_its_own_kernels(
    tmp_path: Path, warm_python: str
) -> None:
    environment = {"TCDEBUG_LOG": "1", "TCDEBUG_RUN_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [warm_python, str(EXAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stdout == "npy computes what the CPU computes\n", done.stderr
    (source,) = (tmp_path / "kernels").iterdir()
    assert "np.sin((arg0_1_in[i0*5 + i1] + arg1_1_in[i1]))" in source.read_text()


def test_gears_need_a_dimension_of_the_tensor_and_positive_sizes() -> None:
    with pytest.raises(BadOption, match="no dimension 2"):
        tcdebug.set_dim_gears(f32(3, 4), {2: [1]})
    with pytest.raises(BadOption, match="must be positive sizes"):
        tcdebug.set_dim_gears(f32(3, 4), {0: [0, 4]})
