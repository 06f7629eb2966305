"""AOTInductor as a backend of torch.compile, and the repros that use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from captured import captured
from torch._higher_order_ops.map import map as map_rows

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.verify import verify
from tcdebug.minifier.targets import inductor


def test_it_refuses_to_lose_gradients() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="aotinductor")
    with pytest.raises(RuntimeError, match=r"under torch\.no_grad"):
        compiled(torch.ones(2, requires_grad=True))
    torch._dynamo.reset()


def test_a_repro_has_the_backend_and_needs_no_tcdebug_if_standalone(tmp_path: Path) -> None:
    case = captured(lambda x: x + 1, torch.ones(2))
    repro = Repro(Outcome(Kind.OK), {"backend": "aotinductor"}, standalone=True)
    write(case, repro, tmp_path / "repro.py")
    text = (tmp_path / "repro.py").read_text()
    assert "@torch._dynamo.register_backend\ndef aotinductor(module: Any, inputs: Any" in text
    assert "\n        from tcdebug" not in text.partition("def switched")[0]


@pytest.mark.slow
def test_a_graph_with_symbolic_sizes_is_one_package(monkeypatch: pytest.MonkeyPatch) -> None:
    packages: list[str] = []
    original = torch._inductor.aoti_load_package

    def load(path: str) -> object:
        packages.append(path)
        return original(path)

    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    compiled = torch.compile(lambda x: x.sin() * x.shape[0], backend="aotinductor", dynamic=True)
    for rows in (4, 6, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), x.sin() * rows)
    assert len(packages) == 1


@pytest.mark.slow
def test_a_graph_is_exported_packaged_and_loaded(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x, n: x.sin() * n, backend="aotinductor", dynamic=True)
    for size in (4, 6):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, size), x.sin() * size)
    case = captured(lambda x: x + 1, torch.ones(2))
    ambient = Ambient.current()
    repro = Repro(Outcome(Kind.OK), {"backend": "aotinductor"}, ambient=ambient)
    write(case, repro, tmp_path / "repro.py")
    assert verify(tmp_path / "repro.py").status == 0


def conditions(x: torch.Tensor) -> torch.Tensor:
    chosen = torch.cond(x.sum() > 0, lambda y: 1 - y, lambda y: y * 2, (x,))
    return map_rows(lambda row: row * row.shape[0], chosen)


def sizes(x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(x.shape[0]).float()[:, None]
    return 1 - x / x.shape[0] - rows + torch.where(x > 0.5, 1.0, x).amax() + x.logsumexp(0)


@pytest.mark.slow
@pytest.mark.parametrize("function", [conditions, sizes])
def test_a_package_calls_the_operators_whose_lowerings_are_off(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """C++ converts no number to a tensor, and passes neither empty lists nor all defaults."""
    compiled = torch.compile(function, backend="aotinductor", dynamic=function is sizes)
    torch._dynamo.reset()
    with torch.no_grad(), inductor.switched(Toggles.parse(["lower"]), EventLog(None)) as gate:
        for rows in (3, 5):
            x = torch.linspace(-1, 2, 4 * rows).reshape(rows, 4)
            torch.testing.assert_close(compiled(x), function(x))
    assert {d.unit for d in gate.decisions} >= EXPECTED[function]


EXPECTED = {
    conditions: {"lower.cond", "lower.map_impl"},
    sizes: {"lower.aten.sub.Tensor", "lower.aten.div.Tensor", "lower.aten.gt.Scalar"},
}
"""Function -> units that are off in its package."""
