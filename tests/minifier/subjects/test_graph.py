"""The repros of a graph: which is written first."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from captured import captured
from torch._inductor import lowering
from torch._inductor.codegen import cpp

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.registry import REGISTRY
from tcdebug.minifier.cases.environment import given
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject
from tcdebug.minifier.subjects.subject import ReproFacts
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR, Backend

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "planted")
SETUP = "\ndef set_up(go):\n    go()\n"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable of torch that this process has set would be tried, too."""
    for name in given():
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("culprit", "needed"),
    [
        ("passes.of_the_script", [True]),
        ("lower.aten.sin.default", [True]),
        ("decompose.aten.cos.default", [True]),
        ("user.fuse_norm", [True]),
        ("lower.aten.cos.default", [False, True]),
        ("passes.algebraic", [False, True]),
        ("site:9029cbb85c", [False, True]),
    ],
)
def test_a_repro_whose_culprit_the_script_defines_runs_the_script_at_once(
    culprit: str, needed: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REGISTRY.aten_passes, "passes.of_the_script", lambda graph: False)
    monkeypatch.setitem(REGISTRY.lowerings, torch.ops.aten.sin.default, lambda site, x: x)
    monkeypatch.setitem(REGISTRY.decompositions, torch.ops.aten.cos.default, lambda x: x)
    backend = Backend(EMBEDDED, EMBEDDED, run_dir=str(tmp_path))
    subject = GraphSubject(backend, EventLog(tmp_path), setups=("", SETUP))
    case = captured(torch.sin, torch.ones(2))
    facts = ReproFacts(case, WRONG, (culprit,), Toggles(), None, 1, Limits())
    texts = [w.path.read_text() for w in subject.repros(facts, tmp_path / "repro.py")]
    assert [SETUP in text for text in texts] == needed


def test_a_repro_of_code_that_the_script_replaced_in_inductor_runs_the_script_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aten = torch.ops.aten
    right = lowering.lowerings[aten.tanh.default]
    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, lambda x: right(x))
    monkeypatch.setattr(cpp.CppVecOverrides, "cos", staticmethod(lambda x: x))
    subject = GraphSubject(Backend(INDUCTOR, INDUCTOR), EventLog(tmp_path), setups=("", SETUP))
    case = captured(torch.sin, torch.ones(2))

    def written(culprit: str) -> list[bool]:
        facts = ReproFacts(case, WRONG, (culprit,), Toggles(), None, 1, Limits())
        texts = [w.path.read_text() for w in subject.repros(facts, tmp_path / "repro.py")]
        return [SETUP in text for text in texts]

    assert written("lower.aten.tanh.default") == [True]
    assert written("lower.aten.cos.default") == [True]
    assert written("lower.aten.sin.default") == [False, True]
    assert written("codegen.simd") == [False, True]


def test_the_repro_of_a_packaged_program_packages_it_unless_only_inductor_alone_fails(
    tmp_path: Path,
) -> None:
    settings = {"aot_inductor.package": True}
    packaging = Backend(AOTINDUCTOR_BACKEND, AOTINDUCTOR_BACKEND, options=settings)
    in_place = Backend(INDUCTOR, INDUCTOR, in_place_of=packaging).with_own_draws()
    assert in_place is not None
    target = in_place.in_place_of
    subject = GraphSubject(in_place, EventLog(tmp_path), setups=("", SETUP), script_target=target)
    case = captured(torch.sin, torch.ones(2))
    facts = ReproFacts(case, WRONG, ("lower.aten.sin.default",), Toggles(), None, 1, Limits())
    written = [
        (w.must_pass, SETUP in text, f"CALL = {packaging.call()}" in text, bool(w.note))
        for w in subject.repros(facts, tmp_path / "repro.py")
        if (text := w.path.read_text())
    ]
    assert written == [
        (True, False, True, False),
        (True, True, True, False),
        (False, False, False, True),
        (False, True, False, True),
    ]
