"""The choice between ways of computing a product, with planted times and without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_times import Planted, templates_win
from programs import f32
from stages import capture

from tcdebug.compiler import seams
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.measured_events import ProductChosen
from tcdebug.compiler.events.schema import Remark
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Reduction
from tcdebug.compiler.ir.verifier import InvalidGraph
from tcdebug.compiler.runtime.cuda.products import UNIT, with_templates
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.schedule.printer import print_schedule
from tcdebug.compiler.schedule.products import product_fusion
from tcdebug.compiler.schedule.verifier import verify_schedule
from tcdebug.compiler.stages.stage import Stages


@pytest.fixture(autouse=True)
def _on_cpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(product_fusion, "DEVICES", ("cpu",))
    monkeypatch.setattr(seams, "has_onednn", lambda dtype: True)  # products stay in half types
    yield


class Heard(EventLog):
    """Keeps the emitted events."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[Event] = []

    def bind(self, **context: Any) -> EventLog:
        return self

    def emit(self, event: Event, **context: Any) -> None:
        self.events.append(event)


def scheduled(function: Callable[..., Any], *inputs: Any, **options: Any) -> Schedule:
    with torch.no_grad():
        off = Toggles.parse(["memory.in_place"])
        (schedule,) = capture(function, *inputs, toggles=off, **options).schedules
    return schedule


class Chosen:
    """The choices for a schedule, and the emitted events."""

    def __init__(
        self,
        schedule: Schedule,
        cache: Path,
        milliseconds: Callable[[str], float] = templates_win,
        off: tuple[str, ...] = (),
    ) -> None:
        self.planted = Planted(milliseconds)
        self.heard = Heard()
        self.gate = Gate(Toggles.parse(off))
        stages = Stages(self.heard, self.gate, "test")
        options = Options(cache_dir=cache)
        self.schedule = with_templates(schedule, stages, options, {"s0": 64}, self.planted.measured)
        self.templates = [k.template for k in self.schedule.kernels() if k.template is not None]

    def events(self, kind: type[Event]) -> list[Any]:
        return [e for e in self.heard.events if isinstance(e, kind)]


def plain() -> Schedule:
    return scheduled(lambda x, w: (x @ w).relu(), f32(512, 256), f32(256, 128))


def test_the_fastest_template_is_chosen_and_the_event_has_all_times(tmp_path: Path) -> None:
    def milliseconds(name: str) -> float:
        return {"extern": 1.0, "16x64x64 w4 s4": 0.25}.get(name, 0.5)

    chosen = Chosen(plain(), tmp_path, milliseconds)
    (template,) = chosen.templates
    assert (template.rows, template.columns, template.depth) == (16, 64, 64)
    (event,) = chosen.events(ProductChosen)
    assert event.chosen == "16x64x64 w4 s4"
    assert event.milliseconds["extern"] == 1.0
    assert event.milliseconds["16x64x64 w4 s4"] == 0.25
    assert not event.known
    assert [d.unit for d in chosen.gate.decisions] == [UNIT]
    assert "template='16x64x64 w4 s4'" in print_schedule(chosen.schedule)


def test_a_template_without_a_product_is_rejected(tmp_path: Path) -> None:
    chosen = Chosen(plain(), tmp_path)
    (kernel,) = chosen.schedule.kernels()
    first, cast = kernel.nodes[0], kernel.nodes[-1]
    assert isinstance(first, Reduction)
    wrong = {
        "begins with .*, which is not a sum": (cast,),
        "which is not a sum": (replace(first, kind="max"), *kernel.nodes[1:]),
        "sums no products": (replace(first, body=first.body.operands[0]), *kernel.nodes[1:]),
        "more than once per sum": (first, first, *kernel.nodes[1:]),
    }
    for problem, nodes in wrong.items():
        steps = (replace(kernel, nodes=nodes),)
        with pytest.raises(InvalidGraph, match=problem):
            verify_schedule(replace(chosen.schedule, steps=steps))


SLOWER: dict[str, Callable[[str], float]] = {
    "all slower": lambda name: 1.0 if name == "extern" else 1.5,
    "within the noise": lambda name: 1.0 if name == "extern" else 0.99,
    "none can be run": lambda name: 1.0 if name == "extern" else -1.0,
    "nothing can be run": lambda name: -1.0,
}


@pytest.mark.parametrize("name", SLOWER)
def test_the_library_call_is_kept_if_no_template_is_faster(name: str, tmp_path: Path) -> None:
    schedule = plain()
    chosen = Chosen(schedule, tmp_path, SLOWER[name])
    assert chosen.schedule == schedule
    assert chosen.gate.decisions == []  # no product was to be replaced
    messages = [remark.message for remark in chosen.events(Remark)]
    assert messages == ["no template for mm: none was faster than the call"]


def test_a_choice_is_cached_by_the_computation_and_not_by_names(tmp_path: Path) -> None:
    def other(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, w).relu()

    first = Chosen(plain(), tmp_path)
    again = Chosen(scheduled(other, f32(512, 256), f32(256, 128)), tmp_path)
    assert (len(first.planted.asked), len(again.planted.asked)) == (1, 0)
    assert again.templates == first.templates
    (event,) = again.events(ProductChosen)
    assert event.known
    larger = scheduled(other, f32(512, 256), f32(256, 256))
    assert len(Chosen(larger, tmp_path).planted.asked) == 1


def test_a_measurement_that_ran_out_of_memory_is_repeated(tmp_path: Path) -> None:
    Chosen(plain(), tmp_path, lambda name: -1.0)
    assert len(Chosen(plain(), tmp_path).planted.asked) == 1


def test_an_unreadable_choice_is_made_again(tmp_path: Path) -> None:
    Chosen(plain(), tmp_path)
    (kept,) = (tmp_path / "products").iterdir()
    kept.write_text('{"milliseconds": {"extern"')
    assert len(Chosen(plain(), tmp_path).planted.asked) == 1


@pytest.mark.parametrize("off", [UNIT, "codegen", "all", "only:fuse"])
def test_with_the_unit_off_nothing_is_measured(off: str, tmp_path: Path) -> None:
    schedule = plain()
    chosen = Chosen(schedule, tmp_path, off=(off,))
    assert chosen.schedule == schedule
    assert chosen.planted.asked == chosen.gate.decisions == []


def test_a_single_product_can_be_switched_off(tmp_path: Path) -> None:
    schedule = scheduled(lambda x, a, b: (x @ a) @ b, *[f32(128, 128)] * 3)
    first = Chosen(schedule, tmp_path)
    assert len(first.templates) == 2
    site = first.gate.decisions[0].site
    chosen = Chosen(schedule, tmp_path, off=(f"site:{site}",))
    assert [d.allowed for d in chosen.gate.decisions] == [False, True]
    assert [s.name for s in chosen.schedule.steps] == ["mm", "cpp_mm_0"]


def test_equal_layers_are_not_measured_again(tmp_path: Path) -> None:
    def layers(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for w in (a, b, c):
            x = (x @ w).relu()
        return x

    square = (128, 128)
    schedule = scheduled(layers, f32(*square), f32(*square), f32(*square), f32(*square))
    chosen = Chosen(schedule, tmp_path)
    assert len(chosen.templates) == 3
    assert len(chosen.planted.asked) <= 2  # the first layer has its arguments in another order
    names = [k.name for k in chosen.schedule.kernels()]
    assert len(set(names)) == 3


def test_variants_differ_only_in_what_is_fused(tmp_path: Path) -> None:
    schedule = scheduled(lambda x, w: (x.half() @ w).relu(), f32(512, 256), f32(256, 128).half())
    chosen = Chosen(schedule, tmp_path)
    (ways,) = chosen.planted.asked
    assert [s.name for s in ways["extern"]] == ["cpp_to_copy_0", "mm", "cpp_relu_2"]
    with_prologue = {name: len(steps) for name, steps in ways.items() if "prologue" in name}
    without = {n: len(s) for n, s in ways.items() if n not in with_prologue and n != "extern"}
    assert set(with_prologue.values()) == {1}
    assert set(without.values()) == {2}
    assert [s.name for s in chosen.schedule.steps] == ["cpp_fused_mm_relu_2"]


def test_symbolic_sizes_have_the_values_of_the_capture(tmp_path: Path) -> None:
    schedule = scheduled(lambda x, w: (x @ w).relu(), f32(24, 256), f32(256, 128), dynamic=True)
    chosen = Chosen(schedule, tmp_path)
    assert len(chosen.templates) == 1


PRECISIONS = {
    "allow_tf32": ("allow_tf32", True, "tf32"),
    "fp32_precision": ("fp32_precision", "tf32", "tf32"),
    "ieee": ("fp32_precision", "ieee", "ieee"),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_float32_has_the_precision_that_torch_allows(name: str, tmp_path: Path) -> None:
    setting, value, expected = PRECISIONS[name]
    schedule, matmul = plain(), torch.backends.cuda.matmul
    before = matmul.fp32_precision
    setattr(matmul, setting, value)
    try:
        (template,) = Chosen(schedule, tmp_path).templates
    finally:
        matmul.allow_tf32 = False
        matmul.fp32_precision = before
    assert template.precision == expected


def test_without_the_option_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Options().templates
    assert Options().updated("max-autotune", None).templates
    assert Options().updated("max-autotune-no-cudagraphs", None).templates
    assert not Options().updated("reduce-overhead", None).templates
    monkeypatch.setenv("TCDEBUG_TEMPLATES", "1")
    assert Options.from_env().templates
