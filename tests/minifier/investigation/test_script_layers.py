"""The layer to which the runs of a script lead."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken, Fallback
from tcdebug.compiler.events.search_events import GraphRounded
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.script_failure import ScriptFailure
from tcdebug.minifier.investigation.script_layers import WHICH_CACHE, LayerSearch, ScriptLayer
from tcdebug.minifier.investigation.script_runs import ScriptRuns
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.repros.verify import times_to_confirm
from tcdebug.minifier.subjects.layer_texts import Off, described, listed

FAILS = Outcome(Kind.EXCEPTION, "script", "script | AssertionError", "AssertionError: [9, 9]")
OTHER = Outcome(Kind.EXCEPTION, "script", "script | KeyError", "KeyError: 3")
HANGS = Outcome(Kind.HANG, "script", "script | hang", "no end after 60 s")
PASSES = Outcome(Kind.OK, "script")

EAGER, DYNAMO = ("layer.dynamo",), ("layer.autograd",)
AOT, DECOMPOSED = ("layer.decompositions",), ("layer.backend",)
CACHES = ("layer.cache",)
BARE = ("layer.dynamo.wrapper",)
ANEW, BACKEND_ANEW = ("layer.dynamo.guards",), ("layer.backend.guards",)
CUDAGRAPHS = ("cudagraphs",)
AOT_ANEW, DECOMPOSED_ANEW = ("layer.autograd.guards",), ("layer.decompositions.guards",)
BACKWARD = ("autograd.backward",)

ENDLESS_PASS = """
import time
import tcdebug, torch

@tcdebug.gated("endless")
def endless(graph):
    time.sleep(10_000)

endless(torch.fx.Graph())
"""

Runs = Mapping[Off, Outcome]


def found(
    runs: Runs, used: frozenset[str] = frozenset(), *, alike: bool = True
) -> tuple[ScriptLayer, list[Off]]:
    """Return the finding and the questions, if all runs pass except these.

    `alike` says whether failing runs end at the same statement.
    """
    asked: list[Off] = []

    def ask(questions: tuple[Off, ...]) -> Runs:
        asked.extend(questions)
        return {off: runs.get(off, PASSES) for off in questions}

    search = LayerSearch(ask, FAILS, {(): FAILS}, lambda: used, ended_alike=lambda off: alike)
    finding = search.find()
    if finding.settled and finding.layer == "layer.backend":
        finding = search.within_backend()
    return finding, asked


FAILING: dict[str, tuple[Off, ...]] = {
    "layer.script": (EAGER, DYNAMO, BARE),
    "layer.dynamo.wrapper": (EAGER, DYNAMO),
    "layer.dynamo": (DYNAMO, AOT, DECOMPOSED, ANEW, (*DYNAMO, *ANEW)),
    "layer.dynamo.guards": (DYNAMO, AOT, DECOMPOSED),
    "layer.autograd": (AOT, DECOMPOSED, AOT_ANEW, (*AOT, *AOT_ANEW)),
    "layer.autograd.guards": (AOT, DECOMPOSED),
    "layer.decompositions": (DECOMPOSED, DECOMPOSED_ANEW, (*DECOMPOSED, *DECOMPOSED_ANEW)),
    "layer.decompositions.guards": (DECOMPOSED,),
    "layer.backend": (CACHES, BACKEND_ANEW),
    "layer.backend.guards": (CACHES, CUDAGRAPHS),
    "cudagraphs": (CACHES,),
    "layer.cache.aotautograd": (("layer.cache.fx_graph",), BACKEND_ANEW),
    "layer.cache.fx_graph": (("layer.cache.aotautograd",), BACKEND_ANEW),
    "layer.cache.precompile": (
        ("layer.cache.aotautograd",), ("layer.cache.fx_graph",), ("layer.cache.autotune",),
        ("layer.cache.profile",),
    ),
    "layer.cache": (
        ("layer.cache.aotautograd",), ("layer.cache.fx_graph",), ("layer.cache.autotune",),
        ("layer.cache.profile",), ("layer.cache.precompile",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("layer", "failing"), FAILING.items(), ids=FAILING)
def test_the_layer_is_the_one_without_which_it_passes(layer: str, failing: tuple[Off, ...]) -> None:
    finding, _ = found(dict.fromkeys(failing, FAILS))
    assert (finding.layer, finding.settled) == (layer, True)


def test_a_script_rejects_rounding_if_it_fails_alike_in_float64_or_with_noise() -> None:
    def search(*endings: Outcome) -> str:
        left = iter(endings)

        def ask(questions: tuple[Off, ...]) -> Runs:
            return {question: next(left) for question in questions}

        shown = LayerSearch(ask, FAILS, {(): FAILS}).rejects_rounding()
        assert next(left, None) is None, "the first run that fails is the last"
        return shown

    assert search(FAILS, PASSES) == "layer.precision"
    assert search(PASSES, FAILS, PASSES) == "layer.rounding"
    assert search(PASSES, PASSES) == ""
    assert search(OTHER, OTHER) == "", "another failure says nothing about this one"
    assert search(FAILS, FAILS, FAILS, FAILS) == "", "it fails with unchanged roundings too"
    assert search(FAILS, OTHER, FAILS, OTHER) == "", "what the control shows is not known"


def test_a_script_that_measures_times_is_not_recompiled_for_every_call() -> None:
    times, used = ("layer.own_times",), frozenset({"layer.own_times"})
    measuring = dict.fromkeys([DYNAMO, times], FAILS)
    finding, asked = found(measuring, used)
    assert (finding.layer, asked[-1]) == ("layer.dynamo", times)
    finding, asked = found({DYNAMO: FAILS}, used)
    assert (finding.layer, finding.settled) == ("layer.dynamo.guards", True)


@pytest.mark.parametrize(("alike", "shown"), [(True, "layer.precision"), (False, "")])
def test_a_message_that_depends_on_results_does_not_hide_that_rounding_is_rejected(
    alike: bool, shown: str
) -> None:
    def ask(questions: tuple[Off, ...]) -> Runs:
        return {off: PASSES if off[0].endswith(".control") else OTHER for off in questions}

    search = LayerSearch(ask, FAILS, {(): FAILS}, ended_alike=lambda off: alike)
    assert search.rejects_rounding() == shown


def may_round(folder: Path, *events: Event) -> bool:
    log = EventLog(folder)
    for event in events:
        log.emit(event)
    job = Job("search", "script.py", [], str(folder))
    return ScriptRuns(job, log, 60.0, time.monotonic() + 60.0).may_round()


def test_rounding_explains_nothing_if_every_graph_was_judged_and_none_was_rounded(
    tmp_path: Path,
) -> None:
    seen, part = GraphRounded(0, 0), Fallback("graph 1 is judged only as a part of the script", "")
    other = Fallback("--off fuse.none", "no step has this name")
    in_child = Fallback("graphs of worker are not judged", "")
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    assert not may_round(folders[0], other)
    assert may_round(folders[1], other, seen)
    assert may_round(folders[2], part)
    assert may_round(folders[3], in_child)


def test_a_script_whose_first_pass_does_not_end_is_seen_to_have_passes(tmp_path: Path) -> None:
    """The event of a pass is written when it ends."""
    log = EventLog(tmp_path)
    runs = ScriptRuns(Job("layers", "script.py", [], str(tmp_path)), log, 60.0, 60.0)
    log.emit(DecisionTaken("inline", 0, allowed=True), unit="fuse.inline", site="1")
    assert runs.used() == frozenset()
    log.emit(DecisionTaken("fast_tanh", 0, allowed=True), unit="user.fast_tanh", site="2")
    assert runs.used() == {"user"}


@pytest.mark.usefixtures("warm")
def test_a_run_without_the_passes_of_a_script_limits_the_others_if_one_does_not_end(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDLESS_PASS)
    job = Job("layers", str(script), [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(tmp_path), 300.0, time.monotonic() + 300.0, stuck=True)
    answers = runs.limiting(("user",))
    assert {off: outcome.kind for off, outcome in answers.items()} == {("user",): Kind.OK}
    assert runs.seconds < 300.0


@pytest.mark.usefixtures("warm")
def test_the_run_in_eager_of_a_script_that_hangs_needs_no_other_run_beside_it(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text("pass\n")
    job = Job("layers", str(script), [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(tmp_path), 300.0, time.monotonic() + 300.0, failure=HANGS)
    answers = runs.ask((EAGER,))
    assert {off: outcome.kind for off, outcome in answers.items()} == {EAGER: Kind.OK}
    assert runs.seconds <= 300.0
    assert runs.ask(()) == {}


@pytest.mark.parametrize(
    "message",
    [
        "torch._dynamo.exc.FailOnRecompileLimitHit: Hard failure",
        "torch._dynamo.exc.RecompileError: Recompiling function f",
        "RuntimeError: Detected recompile when torch.compile stance is 'fail_on_recompile'",
    ],
)
def test_a_refusal_to_recompile_is_not_a_missing_guard(message: str) -> None:
    refusal = Outcome(Kind.EXCEPTION, "script", "script | refused", message)

    def ask(questions: tuple[Off, ...]) -> Runs:
        return {off: refusal if off == DYNAMO else PASSES for off in questions}

    finding = LayerSearch(ask, refusal, {(): refusal}).find()
    assert (finding.layer, finding.settled) == ("layer.dynamo", True)


def test_a_capture_that_does_not_end_is_not_a_missing_guard() -> None:
    asked: list[Off] = []

    def ask(questions: tuple[Off, ...]) -> Runs:
        asked.extend(questions)
        return {off: HANGS if off == DYNAMO else PASSES for off in questions}

    finding = LayerSearch(ask, HANGS, {(): HANGS, EAGER: PASSES}, stuck=True).find()
    assert (finding.layer, finding.settled) == ("layer.dynamo", True)
    assert asked == [DYNAMO], "each further run would take the whole time limit"


@pytest.mark.parametrize(
    ("layer", "failing"),
    [
        ("layer.export", (DYNAMO, AOT, DECOMPOSED)),
        ("layer.dynamo.compiled_autograd", (DYNAMO, AOT, DECOMPOSED)),
        ("layer.aotinductor", ()),
    ],
)
def test_export_compiled_autograd_and_aotinductor_are_layers_of_a_script_that_uses_them(
    layer: str, failing: tuple[Off, ...]
) -> None:
    finding, asked = found(dict.fromkeys(failing, FAILS), frozenset({layer}))
    assert (finding.layer, finding.settled) == (layer, True)
    assert asked[-1] == (layer,)
    without, asked = found(dict.fromkeys(failing, FAILS))
    assert without.layer != layer
    assert (layer,) not in asked


def test_inductor_is_at_fault_if_torch_compile_fails_like_aotinductor() -> None:
    failing = dict.fromkeys((("layer.aotinductor",), CACHES, BACKEND_ANEW), FAILS)
    finding, _ = found(failing, frozenset({"layer.aotinductor", "layer.export"}))
    assert (finding.layer, finding.settled) == ("layer.backend", True)


def test_a_missing_guard_is_found_although_a_cache_returns_the_same_code() -> None:
    finding, _ = found(dict.fromkeys((AOT, DECOMPOSED, AOT_ANEW, CACHES), FAILS))
    assert (finding.off, finding.settled) == (("layer.autograd.guards", "layer.cache"), True)
    assert finding.notes[1] == (
        "with the script's backend it passes only with every call recompiled and all caches off"
    )


def test_a_fault_in_dynamo_needs_no_run_with_the_scripts_backend() -> None:
    for anew, last in ((PASSES, [ANEW]), (FAILS, [])):
        _, asked = found({DYNAMO: FAILS, AOT: FAILS, (*DYNAMO, *ANEW): anew})
        assert asked == [EAGER, DYNAMO, (*DYNAMO, *ANEW), *last]


@pytest.mark.parametrize(
    ("eager", "alike", "layer"),
    [(OTHER, True, "layer.script"), (OTHER, False, ""), (HANGS, True, "")],
)
def test_an_error_at_one_place_is_the_scripts_own_whatever_its_class(
    eager: Outcome, alike: bool, layer: str
) -> None:
    def ask(questions: tuple[Off, ...]) -> Runs:
        return dict.fromkeys(questions, eager)

    finding = LayerSearch(ask, FAILS, {(): FAILS}, raised_alike=lambda: alike).find()
    assert (finding.layer, finding.settled) == (layer, bool(layer))


@pytest.mark.parametrize(
    ("passing", "layer", "settled"),
    [((), "", False), ((DYNAMO, AOT, DECOMPOSED), "layer.backend", True)],
)
def test_eager_is_no_evidence_against_a_script_that_counts_compiles(
    passing: tuple[Off, ...], layer: str, settled: bool
) -> None:
    def ask(questions: tuple[Off, ...]) -> Runs:
        return {off: PASSES if off in passing else FAILS for off in questions}

    finding = LayerSearch(ask, FAILS, {(): FAILS}, may_count=lambda: True).find()
    assert (finding.layer, finding.settled) == (layer, settled)
    assert any("nothing is compiled" in note for note in finding.notes)
    assert LayerSearch(ask, FAILS, {(): FAILS}).find().layer == "layer.script"


@pytest.mark.parametrize("in_eager", [FAILS, OTHER])
@pytest.mark.parametrize(
    ("passing", "layer"), [([("layer.dynamo.code",)], "layer.dynamo.code"), ([], "")]
)
def test_a_script_that_counts_compiles_passes_in_eager_if_they_are_counted(
    in_eager: Outcome, passing: list[Off], layer: str
) -> None:
    def ask(questions: tuple[Off, ...]) -> Runs:
        runs = {off: PASSES if off in passing else FAILS for off in questions}
        return runs | {off: in_eager for off in questions if off == EAGER}

    finding = LayerSearch(ask, FAILS, {(): FAILS}, may_count=lambda: True).find()
    assert (finding.layer, finding.settled) == (layer, bool(layer))
    assert any("compiles are counted" in note for note in finding.notes) == bool(layer)


@pytest.mark.parametrize("counts", [True, False])
def test_a_script_that_counts_compiles_may_fail_otherwise_in_eager(counts: bool) -> None:
    def ask(questions: tuple[Off, ...]) -> Runs:
        return dict.fromkeys(questions, OTHER)

    finding = LayerSearch(ask, FAILS, {(): FAILS}, may_count=lambda: counts).find()
    assert (finding.layer, finding.settled) == ("", False)
    assert any("counts compiles" in note for note in finding.notes) == counts


def test_no_question_is_asked_twice() -> None:
    _, asked = found(dict.fromkeys(FAILING["layer.cache"], FAILS))
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("runs", "layer"),
    [
        ({AOT: OTHER, DECOMPOSED: FAILS, BACKWARD: OTHER, AOT_ANEW: FAILS}, "layer.autograd"),
        ({AOT: OTHER, DECOMPOSED: OTHER, BACKWARD: FAILS, AOT_ANEW: FAILS}, "layer.autograd"),
        (
            {AOT: OTHER, DECOMPOSED: OTHER, (*AOT, *BACKWARD): OTHER, (*AOT, *AOT_ANEW): OTHER},
            "layer.autograd",
        ),
        ({DYNAMO: OTHER, AOT: FAILS, DECOMPOSED: FAILS, ANEW: FAILS}, "layer.dynamo"),
        ({DYNAMO: OTHER, AOT: OTHER, DECOMPOSED: OTHER, (*DYNAMO, *ANEW): OTHER}, "layer.dynamo"),
        ({EAGER: OTHER, DYNAMO: OTHER, AOT: FAILS, DECOMPOSED: FAILS}, ""),
        ({EAGER: OTHER, DYNAMO: OTHER, AOT: OTHER, DECOMPOSED: HANGS}, ""),
    ],
)
def test_a_different_failure_in_between_settles_nothing(runs: Runs, layer: str) -> None:
    finding, _ = found(runs)
    assert (finding.layer, finding.settled) == (layer, False)
    assert any("it fails differently" in note for note in finding.notes)


@pytest.mark.parametrize(
    ("runs", "guards"),
    [
        ({DYNAMO: OTHER, AOT: OTHER, DECOMPOSED: OTHER}, "layer.dynamo.guards"),
        ({DYNAMO: OTHER, AOT: FAILS, DECOMPOSED: FAILS}, "layer.dynamo.guards"),
        ({AOT: OTHER, DECOMPOSED: OTHER, BACKWARD: FAILS}, "layer.autograd.guards"),
    ],
)
def test_a_missing_guard_is_found_although_each_backend_fails_in_a_way_of_its_own(
    runs: Runs, guards: str
) -> None:
    finding, _ = found(runs)
    assert (finding.layer, finding.settled) == (guards, True)


@pytest.mark.parametrize("decomposed", [FAILS, OTHER])
def test_backward_is_at_fault_if_aotautograd_alone_fails_differently_and_passes_without_it(
    decomposed: Outcome,
) -> None:
    finding, _ = found({AOT: OTHER, DECOMPOSED: decomposed})
    assert (finding.layer, finding.settled) == ("autograd.backward", True)
    assert "it fails differently with the backend aot_eager: KeyError: 3" in finding.notes
    assert BACKWARD not in found({AOT: FAILS, DECOMPOSED: OTHER})[1]
    assert not found({AOT: HANGS, DECOMPOSED: decomposed, AOT_ANEW: FAILS})[0].settled
    elsewhere = found({AOT: OTHER, DECOMPOSED: decomposed, AOT_ANEW: FAILS}, alike=False)[0]
    assert (elsewhere.layer, elsewhere.settled) == ("layer.autograd", False)


@pytest.mark.parametrize(
    ("failing", "layer", "settled"),
    [
        ((CACHES,), "cudagraphs", True),
        ((CACHES, CUDAGRAPHS), "layer.backend.guards", True),
        ((("layer.cache.aotautograd",), BACKEND_ANEW), "layer.cache.fx_graph", True),
        ((CACHES, BACKEND_ANEW), "layer.decompositions", False),
    ],
)
def test_a_part_of_the_backend_is_found_if_what_replaces_the_backend_fails_differently(
    failing: tuple[Off, ...], layer: str, settled: bool
) -> None:
    finding, _ = found({DECOMPOSED: OTHER, **dict.fromkeys(failing, FAILS)})
    assert (finding.layer, finding.settled) == (layer, settled)


def test_a_cuda_graph_that_cannot_be_recorded_is_named_although_recompiling_does_not_help() -> None:
    failing = dict.fromkeys((CACHES, BACKEND_ANEW), FAILS)
    assert found(failing)[0].layer == "layer.backend"
    assert found(failing, frozenset(CUDAGRAPHS))[0].layer == "cudagraphs"
    other = {DECOMPOSED: OTHER, **failing}
    assert found(other, frozenset(CUDAGRAPHS))[0].layer == "cudagraphs"


def test_a_script_that_needs_torch_compile_to_run_still_has_a_layer() -> None:
    failing = dict.fromkeys(FAILING["layer.decompositions"], FAILS)
    finding, _ = found({EAGER: OTHER, **failing})
    assert (finding.layer, finding.settled) == ("layer.decompositions", True)
    assert finding.notes[1] == "it fails differently in eager: KeyError: 3"


@pytest.mark.parametrize(
    ("answered", "failing", "layer"),
    [
        (0, {}, ""),
        (2, {}, "layer.autograd"),
        (2, {DYNAMO: FAILS}, "layer.dynamo"),
        (4, {DECOMPOSED: FAILS}, "layer.decompositions"),
        (4, {}, "layer.backend"),
        (6, {CACHES: FAILS}, "layer.backend"),
        (6, {}, "layer.cache"),
    ],
)
def test_a_search_that_the_budget_ends_tells_what_it_knows(
    answered: int, failing: Runs, layer: str, tmp_path: Path
) -> None:
    asked: list[Off] = []

    def ask(questions: tuple[Off, ...]) -> Runs:
        if len(asked) >= answered:
            raise BudgetUsed
        asked.extend(questions)
        return {off: failing.get(off, PASSES) for off in questions}

    search = LayerSearch(ask, FAILS, {(): FAILS})
    with pytest.raises(BudgetUsed):
        search.find()
        search.within_backend()
    job = Job("search", "script.py", [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(None), 60.0, 0.0)
    report = ScriptFailure(job, FAILS, search.so_far(), runs, search, in_budget=False).report()
    assert (report.status, report.layer) == ("budget", layer)
    assert report.failure is not None
    assert report.failure.message == "AssertionError: [9, 9]"
    assert (len(report.ladder), report.faults) == (answered, [])
    note = WHICH_CACHE if layer == "layer.cache" else f"it is {layer} or a later one"
    assert (note in report.notes) == bool(layer)


def test_a_script_that_raises_at_one_place_fails_in_eager(tmp_path: Path) -> None:
    start = 'Traceback (most recent call last):\n  File "s.py", line 9, in <module>\n    step(x)\n'
    line = '  File "s.py", line 3, in step\n    return x @ w\n'
    eager, compiled = tmp_path / "eager.log", tmp_path / "as_it_is.log"
    eager.write_text(f"{start}{line}RuntimeError: shapes cannot be multiplied\n")
    compiled.write_text(f"{start}TorchRuntimeError: no\n\nfrom user code:\n{line}\n\nSet")
    job = Job("search", "s.py", [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(None), 60.0, 0.0, logs={EAGER: eager, (): compiled})
    search = LayerSearch(
        lambda questions: dict.fromkeys(questions, OTHER),
        FAILS,
        {(): FAILS},
        raised_alike=runs.raised_alike,
    )
    report = ScriptFailure(job, FAILS, search.find(), runs, search).report()
    assert (report.status, report.layer) == ("fails_in_eager", "layer.script")
    assert report.failure is not None
    assert report.failure.message == "RuntimeError: shapes cannot be multiplied"
    assert report.notes[-1] == "compiled, it raises at the same place: AssertionError: [9, 9]"


def test_a_repro_that_does_not_end_in_the_budget_is_no_evidence_against_the_layer(
    tmp_path: Path,
) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(600)")
    output = tmp_path / "as_it_is.log"
    output.write_text("AssertionError: [9, 9]")
    job = Job("search", str(script), [], str(tmp_path))
    finding = ScriptLayer("layer.dynamo", {(): FAILS, EAGER: PASSES, DYNAMO: FAILS}, settled=True)
    search = LayerSearch(lambda questions: {}, FAILS)
    for seconds in (2.0, 0.0):
        runs = ScriptRuns(job, EventLog(None), 60.0, time.monotonic() + seconds)
        runs.logs[()] = output
        report = ScriptFailure(job, FAILS, finding, runs, search).report()
        assert (report.status, report.layer) == ("budget", "layer.dynamo")
        assert [c.unit for c in report.culprits] == ["layer.dynamo"]
        assert report.notes[0] == "the budget was used up while the repro ran"
        assert not any("does not fail" in note for note in report.notes)
        assert (report.faults[0].fails, report.faults[0].passes) == ("", "")


@pytest.mark.parametrize(
    ("message", "noted"),
    [
        ("torch._dynamo.exc.UserError: 3 is not a size", ["torch reports a mistake"]),
        ("torch._dynamo.exc.Unsupported: Attempted to inline", ["Dynamo does not support"]),
        (
            "torch.compile with aot_autograd does not currently support double backward",
            ["torch does not support gradients of gradients"],
        ),
        ("ValueError: UserError", []),
    ],
)
def test_an_error_that_torch_blames_on_the_program_has_a_note(
    message: str, noted: list[str]
) -> None:
    failure = Outcome(Kind.EXCEPTION, "script", "script | error", message)
    asked = LayerSearch(
        lambda questions: {off: PASSES for off in questions}, failure, {(): failure}
    )
    finding = asked.find()
    assert finding.layer == "layer.backend"
    begins = ("torch reports", "Dynamo does not", "torch does not")
    notes = [n for n in finding.notes if n.startswith(begins)]
    assert [any(map(note.startswith, noted)) for note in notes] == [True] * len(noted)


@pytest.mark.parametrize(
    ("settled", "said"),
    [
        (True, "the script ended otherwise there than in forks of a process"),
        (False, "the runs in forks of a process that has imported torch left the layer undecided"),
    ],
)
def test_only_a_contradiction_is_reported_as_one(tmp_path: Path, settled: bool, said: str) -> None:
    finding = ScriptLayer("layer.decompositions", {(): FAILS}, settled=settled)
    job, search = Job("search", "s.py", [], str(tmp_path)), LayerSearch(lambda questions: {}, FAILS)
    runs = ScriptRuns(job, EventLog(None), 60.0, 0.0)
    failed = ScriptFailure(job, FAILS, finding, runs, search)
    assert failed.why_in_fresh_processes.reason.startswith(said)


@pytest.mark.parametrize(
    ("statement", "holds"),
    [pytest.param("raise KeyError(1)", True, marks=pytest.mark.slow), ("pass", False)],
)
def test_an_undecided_layer_is_searched_again_only_if_fresh_processes_end_otherwise(
    tmp_path: Path, statement: str, holds: bool
) -> None:
    (tmp_path / "s.py").write_text(statement)
    job = Job("search", str(tmp_path / "s.py"), [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(None), 60.0, time.monotonic() + 60.0)
    known = {(): FAILS, EAGER: PASSES, ("layer.autograd",): OTHER}
    finding, search = ScriptLayer("", known, settled=False), LayerSearch(lambda asked: {}, FAILS)
    failed = ScriptFailure(job, FAILS, finding, runs, search)
    assert failed.holds_in_fresh_processes() is holds


@pytest.mark.parametrize(
    ("statement", "status"), [("pass", "unconfirmed"), ("raise KeyError(1)", "fails_in_eager")]
)
def test_a_script_that_passes_without_tcdebug_is_not_said_to_fail_in_eager(
    tmp_path: Path, statement: str, status: str
) -> None:
    (tmp_path / "s.py").write_text(statement)
    (tmp_path / "eager.log").write_text("AssertionError: [9, 9]\n")
    job = Job("search", str(tmp_path / "s.py"), [], str(tmp_path))
    logs = {EAGER: tmp_path / "eager.log"}
    runs = ScriptRuns(job, EventLog(None), 60.0, time.monotonic() + 60.0, logs=logs)
    finding = ScriptLayer("layer.script", {(): FAILS, EAGER: FAILS}, settled=True)
    search = LayerSearch(lambda asked: {}, FAILS)
    report = ScriptFailure(job, FAILS, finding, runs, search).report()
    assert (report.status, report.confirmed) == (status, False)
    said = [n for n in report.notes if n.startswith("it passes without tcdebug in its process")]
    assert bool(said) is (status == "unconfirmed")


def test_no_process_is_started_once_the_budget_is_used_up(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("open('ran', 'w')")
    job = Job("search", str(tmp_path / "s.py"), [], str(tmp_path))
    runs = ScriptRuns(job, EventLog(None), 60.0, time.monotonic() - 1.0)
    with pytest.raises(BudgetUsed):
        runs.traced(((), EAGER), tmp_path / "cache")
    assert runs.runs == 0
    assert not runs.passes_plainly()
    assert runs.runs == 0


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (
            (DYNAMO, AOT, DECOMPOSED),
            "layer.dynamo.guards: it passes if every call is recompiled, even with the backend "
            "eager",
        ),
        (
            (AOT, DECOMPOSED, AOT_ANEW, (*AOT, *AOT_ANEW)),
            "layer.autograd: it fails with the backend aot_eager, and passes with eager",
        ),
        (
            (("layer.cache.fx_graph",), BACKEND_ANEW, CUDAGRAPHS),
            "layer.cache.aotautograd: it passes if layer.cache.aotautograd alone is off",
        ),
    ],
)
def test_a_layer_is_announced_with_the_runs_that_decide(
    tmp_path: Path, failing: tuple[Off, ...], said: str
) -> None:
    finding, _ = found(dict.fromkeys(failing, FAILS))
    assert announced(tmp_path, finding) == said


def test_an_undecided_layer_is_announced_with_all_runs(tmp_path: Path) -> None:
    undecided = ScriptLayer(
        "", {(): FAILS, EAGER: PASSES, DYNAMO: FAILS, AOT: OTHER}, settled=False
    )
    assert announced(tmp_path, undecided) == (
        "no layer yet: it fails as it is and with the backend eager, and passes in eager"
    )


def announced(folder: Path, finding: ScriptLayer) -> str:
    runs = ScriptRuns(Job("search", "s.py", [], str(folder)), EventLog(None), 60.0, 0.0)
    search = LayerSearch(lambda questions: {}, FAILS)
    return ScriptFailure(runs.job, FAILS, finding, runs, search).announcement


def test_runs_are_listed_as_in_a_sentence() -> None:
    two, three = described((*DYNAMO, *ANEW)), described(ANEW)
    assert listed([described(EAGER)]) == "in eager"
    assert listed([two, three]) == (
        "with the backend eager and every call recompiled, and with every call recompiled"
    )
    assert listed(["in eager", two, three]) == f"in eager, {two}, and {three}"


@pytest.mark.parametrize(
    ("failing", "layer", "times"),
    [
        ((BACKEND_ANEW,), "layer.cache.aotautograd", 1),
        ((BACKEND_ANEW, ("layer.cache.aotautograd",)), "layer.cache.fx_graph", 1),
        ((), "layer.cache.aotautograd", 2),
        ((CACHES, CUDAGRAPHS), "layer.backend.guards", 2),
        ((DYNAMO, AOT, DECOMPOSED), "layer.dynamo.guards", 1),
    ],
)
def test_a_layer_is_confirmed_by_more_runs_if_few_showed_that_it_is_no_chance(
    failing: tuple[Off, ...], layer: str, times: int
) -> None:
    finding, _ = found(dict.fromkeys(failing, FAILS))
    assert finding.layer == layer
    assert times_to_confirm(finding.off, finding.runs, FAILS) == times


def test_the_first_cache_with_which_it_passes_is_the_last_that_is_asked_about() -> None:
    _, asked = found({BACKEND_ANEW: FAILS})
    assert asked[-3:] == [CACHES, BACKEND_ANEW, ("layer.cache.aotautograd",)]
    _, asked = found(dict.fromkeys((BACKEND_ANEW, ("layer.cache.aotautograd",)), FAILS))
    assert asked[-2:] == [("layer.cache.aotautograd",), ("layer.cache.fx_graph",)]
