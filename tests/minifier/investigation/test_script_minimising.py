"""A script that fails as a whole is made small, and the small one is checked in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.criteria import Criteria, PrintedLine
from tcdebug.minifier.cases.layer_names import DYNAMO, GUARDS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.cases.user_frames import TRACEBACK
from tcdebug.minifier.investigation import minimised_script as script_minimised
from tcdebug.minifier.investigation import script_minimising
from tcdebug.minifier.investigation.minimised_script import (
    RESULT,
    TASK,
    MinimisedScript,
    MinimisingTask,
    SmallVersion,
    minimising_task,
    needs,
    reason_not_minimised,
    with_minimised_script,
)
from tcdebug.minifier.investigation.report import Culprit, Report, ReportedFailure, ReportedFault
from tcdebug.minifier.investigation.script_minimising import ScriptMinimising
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, Spending
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.repros.verify import LATE, Verified
from tcdebug.minifier.subjects.forked_script import ForkedScripts, without_values
from tcdebug.minifier.subjects.script import outcome_of

LAYER = "layer.autograd"

PLANTED = """
import types
from torch._functorch._aot_autograd import functional_utils
views = functional_utils._functionalization
parts = {name: getattr(views, name) for name in dir(views) if not name.startswith("__")}
parts["apply_view_meta_sequence"] = lambda *args: views.apply_view_meta_sequence(*args).clone()
functional_utils._functionalization = types.SimpleNamespace(**parts)
"""
"""AOTAutograd returns copies in place of views."""

TRAINING = f"""
import argparse
import torch
import torch._dynamo
{PLANTED}

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--backend", default="aot_eager")
    return parser.parse_args()


class Buffer(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.register_buffer("values", torch.zeros(rows, 3))
        self.count = 0

    def forward(self, x):
        y = x.sin()
        self.last = y.cos()
        return x[0]


def report(step, tensor):
    print("step", step, tensor.shape)


def main():
    args = parse()
    model = Buffer(args.rows)
    compiled = torch.compile(model, backend=args.backend)
    for step in range(2):
        x = torch.zeros(args.rows, 3)
        row = compiled(x)
        row.add_(1)
        report(step, row)
        assert x.sum() == 3, (step, x.sum())


if __name__ == "__main__":
    main()
"""


OWN_PASSES = """
import torch
import tcdebug

@tcdebug.gated("clean")
def clean(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    gm.graph.eliminate_dead_code()
    return gm

@tcdebug.gated("fast_tanh")
def fast_tanh(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in gm.graph.find_nodes(op="call_function", target=torch.tanh):
        node.target = torch.sin
    gm.recompile()
    return gm

def step(x):
    return torch.tanh(x).sum()

def main():
    graph = torch.fx.symbolic_trace(step)
    for one in (clean, fast_tanh):
        graph = one(graph)
    x = torch.ones(3)
    assert torch.equal(graph(x), step(x))

main()
"""


def minimised(
    folder: Path, text: str, kind: str = "exception", off: str = LAYER, layer: str = LAYER
) -> tuple[Job, MinimisedScript]:
    """The result of a session that makes a script small."""
    script = folder / "training.py"
    script.write_text(text)
    job = Job("minimise", str(script), [], str(folder))
    task = MinimisingTask(kind, [off], layer, 200.0)
    (folder / TASK).write_bytes(msgspec.json.encode(task))
    (folder / "job.json").write_bytes(msgspec.json.encode(job))
    command = [sys.executable, "-m", "tcdebug.minifier.sessions.session", str(folder / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return job, msgspec.json.decode((folder / RESULT).read_bytes(), type=MinimisedScript)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("warm")
def test_a_script_with_passes_of_its_own_shrinks_although_eager_runs_them(tmp_path: Path) -> None:
    _, result = minimised(tmp_path, OWN_PASSES, off="user.fast_tanh", layer="user")
    assert (result.reason, result.lines_before) == ("", 21)
    assert "clean" not in result.text and "fast_tanh" in result.text


def whole_script_report(repro: Path, failure: ReportedFailure, layer: str) -> Report:
    """Write a repro of a whole script, and return the report that has it."""
    repro.write_text("the repro of the whole script")
    fault = ReportedFault(
        failure, [Culprit(layer, "training.py", "", 0)], confirmed=True, repro=str(repro),
        fails="python repro.py", passes=f"python repro.py --off={layer}",
    )  # fmt: skip
    return Report("confirmed", failure, faults=[fault], layer=layer)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("warm")
def test_a_training_script_shrinks_to_the_fault_and_its_repro_passes_without_the_layer(
    tmp_path: Path,
) -> None:
    job, result = minimised(tmp_path, TRAINING)
    assert result.reason == ""
    assert result.lines_before == 37 and result.lines_after <= 15
    assert result.alone and result.args == ()
    assert "argparse" not in result.text and "class Buffer" not in result.text
    assert "apply_view_meta_sequence" in result.text and "assert" in result.text

    repro = tmp_path / "repro.py"
    failure = ReportedFailure("exception", "script | AssertionError", "script", "AssertionError: 1")
    report = whole_script_report(repro, failure, LAYER)
    task = minimising_task(report, 100.0, 4.0)
    assert task == MinimisingTask(
        "exception", [LAYER], LAYER, 100.0, 4.0, "script | AssertionError"
    )
    after = with_minimised_script(job, report, task, result, EventLog(tmp_path), lambda: 600.0)
    assert after.notes == []
    assert after.script is not None and after.script.lines_after == result.lines_after
    assert after.faults[0].short == str(tmp_path / "short.py")
    assert (tmp_path / "short.py").read_text() == result.text + "\n"

    harmless = msgspec.structs.replace(result, text="import torch")
    repro.write_text("the repro of the whole script")
    after = with_minimised_script(job, report, task, harmless, EventLog(tmp_path), lambda: 600.0)
    assert after.script is None and "does not fail in the same way" in after.notes[0]
    assert repro.read_text() == "the repro of the whole script"
    after = with_minimised_script(job, report, task, result, EventLog(tmp_path), lambda: 0.0)
    assert after.script is None and "did not end in time" in after.notes[0]
    assert repro.read_text() == "the repro of the whole script"


ENDLESS = """
import time
import torch
torch.compile(lambda x: x + 1, backend=lambda graph, inputs: time.sleep(10_000))(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("warm")
def test_a_small_script_that_does_not_end_is_kept_if_it_ends_in_eager(tmp_path: Path) -> None:
    repro = tmp_path / "repro.py"
    failure = ReportedFailure("hang", "script | hang", "script", "no end after 60 s")
    report = whole_script_report(repro, failure, DYNAMO)
    job, log = Job("minimise", str(tmp_path / "training.py"), [], str(tmp_path)), EventLog(tmp_path)
    task = minimising_task(report, 100.0, 20.0)
    assert task is not None
    result = MinimisedScript(ENDLESS, alone=True)
    after = with_minimised_script(job, report, task, result, log, lambda: 240.0)
    assert after.notes == [] and after.script is not None
    assert (tmp_path / "short.py").read_text() == f"{ENDLESS.strip()}\n"

    repro.write_text("the repro of the whole script")
    ends = MinimisedScript(ENDLESS.replace("10_000", "0.1"), alone=True)
    after = with_minimised_script(job, report, task, ends, log, lambda: 240.0)
    assert after.script is None and "does not fail in the same way" in after.notes[0]


FULL_DEQUE = """
import collections
import torch

class Window:
    def __init__(self):
        self.recent = collections.deque([0], maxlen=1)

    def push(self, value):
        self.recent.appendleft(value)

window = Window()

@torch.compile(backend=BACKEND)
def model(x):
    window.push(1)
    return x + 1

model(torch.ones(1))
assert list(window.recent) == [1]
"""


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The events of a run folder."""
    lines = [line for f in folder.glob("events*.jsonl") for line in f.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def runs_of(folder: Path) -> list[tuple[str, list[str]]]:
    """The purpose of each candidate, and what was off."""
    events = [e for e in events_of(folder) if e["event"] == "candidate"]
    return [(e["data"]["purpose"], e["data"]["toggles"]) for e in events]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_only_the_last_checks_of_a_fault_of_dynamo_compile_as_the_script_does(
    tmp_path: Path,
) -> None:
    text = FULL_DEQUE.replace("BACKEND", "'aot_eager'")
    _, result = minimised(tmp_path, text, off=DYNAMO, layer=DYNAMO)
    assert result.reason == "" and result.ended
    assert "self" not in result.text and result.lines_after == 9
    assert result.text.count(".appendleft(") == 1
    unchanged = [purpose for purpose, off in runs_of(tmp_path) if not off]
    assert set(unchanged) == {"the last checks", "the smallest version"}


def test_a_version_that_does_not_end_in_eager_is_left_after_a_short_time(tmp_path: Path) -> None:
    def execute(path: Path, version: ScriptText, toggles: Toggles) -> int:
        exec(path.read_text(), {})
        return 0

    eager = Toggles.parse([DYNAMO])
    job = Job("minimise", str(tmp_path / "script.py"), [], str(tmp_path))
    runner = ForkedScripts(job, tmp_path / "versions", execute, quick=(eager, 0.5))
    started = [
        runner.start(Question(ScriptText(text), toggles, "a test"), Limits(60.0, None))
        for text, toggles in (
            ("while True: pass", eager),
            ("import time; time.sleep(1)", Toggles()),
        )
    ]
    stopped, slow = (runner.outcome(child, finished(child)) for child in started)
    assert stopped.kind is Kind.HANG and stopped.seconds < 10
    assert slow.kind is Kind.OK and slow.seconds >= 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import shutil\nraise ValueError", "a changed script must not call shutil"),
        ("import torch", "it does not fail in a fork of a process that has imported torch"),
        ("raise ValueError('always')", "in a fork, it does not pass in eager"),
        (
            "import torch\ntorch.save({}, __file__.replace('training.py', 'job.json'))",
            "a smaller version of this script may not change {folder}/job.json",
        ),
    ],
)
@pytest.mark.usefixtures("warm")
def test_a_script_that_cannot_be_minimised_says_why(text: str, reason: str, tmp_path: Path) -> None:
    _, result = minimised(tmp_path, text)
    assert result.text == "" and reason.format(folder=tmp_path) in result.reason


LONG = "".join(f'  File "/torch/frame_{n}.py", line {n}, in call\n    run()\n' for n in range(200))


def test_the_exception_of_a_long_traceback_is_that_of_its_last_line() -> None:
    text = f"{TRACEBACK}\n{LONG}torch.Unsupported: no size 3\n\nfrom user code"
    outcome = without_values(outcome_of(SCRIPT_FAILED, text), text, "/folder")
    assert outcome.message == "torch.Unsupported: no size 3"
    assert outcome.signature == "script | torch.Unsupported | torch.Unsupported: no size #"


def test_an_assertion_of_the_script_has_only_its_kind_and_one_of_torch_has_its_message() -> None:
    def of(file: str, message: str) -> str:
        text = f'{TRACEBACK}\n  File "{file}", line 3, in f\n    x\n{message}\n'
        return without_values(outcome_of(SCRIPT_FAILED, text), text, "/folder").signature

    assert of("/folder/a.py", "AssertionError: [1, 2, 3]") == "script | AssertionError | false"
    compared = "AssertionError: Tensor-likes are not close!\n\nGreatest relative difference: 0.5"
    assert of("/x/torch/testing/_comparison.py", compared) == "script | AssertionError | values"
    shape = "AssertionError: The values for attribute 'shape' do not match: 1 != 2."
    assert of("/x/torch/testing/_comparison.py", shape) == "script | AssertionError | other shape"
    stride = "AssertionError: expected size 4==2"
    assert of("/x/torch/_inductor/a.py", stride).endswith("expected size #==#")
    traced = (
        'AssertionError: no 2\n\nfrom user code:\n   File "/folder/a.py", line 5, in f\n    x.y'
    )
    assert of("/x/torch/_dynamo/a.py", traced).endswith("AssertionError: no #")


def test_only_failures_of_whole_scripts_are_reduced_as_scripts() -> None:
    of_a_graph = ReportedFailure("wrong", "forward | wrong value", "forward")
    fault = ReportedFault(of_a_graph, fails="python repro.py")
    assert minimising_task(Report("confirmed", of_a_graph, faults=[fault]), 100.0, 0.0) is None
    of_a_script = ReportedFailure("crash", "script | SIGSEGV", "script")
    fault = ReportedFault(of_a_script, fails="python repro.py")
    report = Report("unconfirmed", of_a_script, faults=[fault])
    assert minimising_task(report, 100.0, 0.0) == MinimisingTask(
        "crash", [], "", 100.0, signature="script | SIGSEGV"
    )
    assert minimising_task(report, 0.0, 0.0) is None
    unseen = ReportedFault(of_a_script)
    assert minimising_task(Report("unconfirmed", of_a_script, faults=[unseen]), 100.0, 0.0) is None


CRASH = ReportedFailure("crash", "script | SIGSEGV", "script")
CRASHED = ReportedFault(CRASH, fails="python repro.py")
WRONG = ReportedFailure("wrong", "forward | wrong value", "forward")


@pytest.mark.parametrize(
    ("faults", "changed", "reason"),
    [
        ([CRASHED], {}, ""),
        ([CRASHED], {"script_seconds": 0.0}, ""),
        ([CRASHED], {"minimise": False}, ""),
        ([ReportedFault(WRONG, fails="python repro.py")], {}, ""),
        ([CRASHED, CRASHED], {}, "it has 2 faults, and only a script with one fault is minimised"),
        ([], {}, "its failure has no repro"),
        ([CRASHED], {"wanted": Criteria(check="grep x")}, "the command of --check decides"),
        ([ReportedFault(CRASH)], {}, "its repro does not fail in a fresh process"),
        ([ReportedFault(ReportedFailure("killed", "", "script"))], {}, "of the kind killed, not"),
    ],
)
def test_the_report_says_why_no_smaller_version_of_a_script_is_sought(
    faults: list[ReportedFault], changed: dict[str, Any], reason: str
) -> None:
    job = msgspec.structs.replace(Job("search", "script.py", [], "run"), **changed)
    report = Report("unconfirmed", faults[0].failure if faults else CRASH, faults=faults)
    said = reason_not_minimised(job, report, 60.0, program=False)
    assert reason in said and bool(reason) == bool(said)


def test_a_repro_that_the_budget_cut_short_is_not_said_to_pass() -> None:
    job = Job("search", "script.py", [], "run")
    report = Report("budget", CRASH, faults=[ReportedFault(CRASH)])
    said = reason_not_minimised(job, report, 1.0, program=False)
    assert said == "no time was left to run its repro"


def test_the_report_says_why_a_program_or_a_search_without_time_is_not_minimised() -> None:
    job = Job("search", "script.py", [], "run")
    report = Report("unconfirmed", CRASH, faults=[CRASHED])
    assert reason_not_minimised(job, report, 60.0, program=True).startswith(
        "it is started by -m, -c"
    )
    late = reason_not_minimised(job, report, 0.0, program=False)
    assert late == "too little time was left to check a smaller version"
    of_a_graph = msgspec.structs.replace(report, graph=0)
    assert reason_not_minimised(job, of_a_graph, 60.0, program=True) == ""


def test_what_a_script_needs_is_stated_only_if_the_search_for_less_has_ended() -> None:
    small = MinimisedScript("import torch\n", ("3",))
    assert needs(small) == [
        "the minimised script needs other files of the script's folder, which are unchanged",
        "the minimised script needs the arguments 3",
    ]
    assert needs(msgspec.structs.replace(small, ended=False)) == [
        "the time ran out before the script was fully minimised",
        "the minimised script may need other files of the script's folder, which are unchanged",
        "the minimised script may need the arguments 3",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_smallest_version_that_fails_in_a_fresh_process_is_kept(tmp_path: Path) -> None:
    signature, message = "script | ValueError | ValueError: captured", "ValueError: captured"
    failure = ReportedFailure("exception", signature, "script", message)
    report = whole_script_report(tmp_path / "repro.py", failure, DYNAMO)
    task = minimising_task(report, 100.0, 1.0)
    job = Job("minimise", str(tmp_path / "training.py"), [], str(tmp_path))
    text = (
        "import torch\ndef f(x):\n    return x + torch.compiler.is_compiling()\n"
        "if torch.compile(f, backend='eager')(torch.zeros(1)) == 1:\n"
        "    raise ValueError('captured')"
    )
    result = MinimisedScript(
        "import torch", alone=True, lines_before=9, lines_after=1,
        earlier=(SmallVersion(text, alone=True),),
    )  # fmt: skip
    assert task is not None
    after = with_minimised_script(job, report, task, result, EventLog(None), lambda: 200.0)
    assert after.script is not None, after.notes
    assert (tmp_path / "short.py").read_text() == f"{text}\n"
    assert after.script.lines_after == 5
    dropped = "a version with 1 lines is not kept: in a fresh process, it does not fail"
    assert after.notes == [f"{dropped} in the same way"]


@pytest.mark.parametrize(("run_seconds", "seconds"), [(8.0, 4.0), (60.0, 20.0)])
def test_half_a_run_of_the_repro_is_kept_for_the_last_checks_but_at_most_a_fifth(
    run_seconds: float, seconds: float
) -> None:
    task = MinimisingTask("exception", [DYNAMO], DYNAMO, 100.0, run_seconds)
    minimising = ScriptMinimising(
        Job("minimise", "s.py", [], ""), task, lambda *_: 0, EventLog(None)
    )
    assert minimising._reserved == seconds


@pytest.mark.parametrize("fails_warm", [True, False])
def test_this_process_warms_up_only_if_the_script_still_fails_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_warm: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(script_minimising, "warm_up_scripts", done.append)

    def execute(path: Path, version: ScriptText, toggles: Toggles) -> int:
        return 3 if fails_warm or not done else 0

    job, log = Job("minimise", str(tmp_path / "script.py"), [], str(tmp_path)), EventLog(tmp_path)
    minimising = ScriptMinimising(job, MinimisingTask("exception", [], "", 100.0), execute, log)
    runner = ForkedScripts(job, tmp_path / "versions", execute)
    start, toggles = ScriptText("import torch"), Toggles()
    oracle = Oracle(
        runner, log, Answers(tmp_path / "answers.jsonl"), Limits(60.0, None),
        Spending(Budget(100.0)), Criteria(), OtherFailures(tmp_path / "other", log),
    )  # fmt: skip
    oracle.failure = oracle.ask(start, toggles, "the script in a fork")
    assert oracle.failure.kind is Kind.EXCEPTION
    minimising._warm_up(oracle, runner, start, toggles, "eager")
    assert done == ["eager"] * fails_warm
    assert (runner.warm, runner.warm_up) == (fails_warm, None)
    assert oracle.ask(start, toggles, "the script in a fork").kind is Kind.EXCEPTION
    fallbacks = [e for e in events_of(tmp_path) if e["event"] == "fallback"]
    assert len(fallbacks) == (not fails_warm)


@pytest.mark.parametrize(
    ("late", "problem", "untried"),
    [
        ((), "", ()),
        (((),), "did not end in time", ()),
        (((GUARDS[DYNAMO],),), "did not end in time", ()),
        (((DYNAMO,),), "", (script_minimised.UNTRIED[script_minimised.IN_EAGER],)),
        ((None,), "", (script_minimised.UNTRIED[script_minimised.ALONE],)),
    ],
)
def test_a_check_that_did_not_end_in_time_is_not_said_to_fail(
    monkeypatch: pytest.MonkeyPatch,
    late: tuple[tuple[str, ...] | None, ...],
    problem: str,
    untried: tuple[str, ...],
) -> None:
    repro, short = Path("repro.py"), Path("short.py")

    def verify(path: Path, toggles: Sequence[str] = (), seconds: float = 0.0) -> Verified:
        how = None if path == short else tuple(toggles)
        return LATE if how in late else Verified(0 if toggles else 1, 1.0, "")

    monkeypatch.setattr(script_minimised, "verify", verify)
    task = MinimisingTask("exception", [GUARDS[DYNAMO]], GUARDS[DYNAMO], 100.0)
    checked = script_minimised._checked(repro, task, short, None, lambda: 100.0)
    assert (checked.problem, checked.untried) == (problem, untried)


@pytest.mark.parametrize(("line", "fails"), [("made 1", True), ("made 0", False)])
def test_a_script_that_ends_well_fails_alone_if_it_does_not_print_its_line(
    monkeypatch: pytest.MonkeyPatch, line: str, fails: bool
) -> None:
    monkeypatch.setattr(script_minimised, "verify", lambda *_: Verified(0, 1.0, "made 0\n"))
    task = MinimisingTask("wrong", [DYNAMO], DYNAMO, 100.0)
    short, wanted = Path("short.py"), PrintedLine(line)
    assert script_minimised._fails_alone(short, task, wanted, lambda: 100.0) is fails


DEQUE = "AssertionError: window [2, 1, 0] instead of [4, 3, 2]"
CLOSE = "AssertionError: Tensor-likes are not close!\n\nGreatest relative difference: 20.5"


@pytest.mark.parametrize(
    ("signature", "ending", "purposes"),
    [
        ("script | ValueError | ValueError: #", "ValueError: 3", 2),
        ("", "ValueError: 3", 2),
        ("script | exit status 1", "ValueError: 3", 1),
        (outcome_of(SCRIPT_FAILED, DEQUE).signature, DEQUE, 2),
        (outcome_of(SCRIPT_FAILED, CLOSE).signature, CLOSE, 2),
        (outcome_of(SCRIPT_FAILED, CLOSE).signature, DEQUE, 1),
        ("script | exit status 1", DEQUE, 1),
    ],
    ids=["error", "unknown", "status", "assertion", "values", "another", "status of an assertion"],
)
def test_versions_run_under_another_backend_only_if_the_script_fails_alike_there(
    tmp_path: Path, signature: str, ending: str, purposes: int
) -> None:
    """Otherwise each version would have to show a failure that the script does not have."""
    asked: list[str] = []

    class Raises(Oracle[ScriptText]):
        def ask(self, candidate: ScriptText, toggles: Toggles, purpose: str) -> Outcome:
            asked.append(purpose)
            return without_values(outcome_of(SCRIPT_FAILED, ending), ending, str(tmp_path))

    task = MinimisingTask("exception", [GUARDS[DYNAMO]], DYNAMO, 100.0, signature=signature)
    job, log = Job("minimise", str(tmp_path / "s.py"), [], str(tmp_path)), EventLog(None)
    minimising = ScriptMinimising(job, task, lambda *_: 1, log)
    runner = ForkedScripts(job, tmp_path / "versions", lambda *_: 1)
    oracle = Raises(
        runner, log, Answers(tmp_path / "answers.jsonl"), Limits(60.0, None),
        Spending(Budget(100.0)), Criteria(), OtherFailures(tmp_path / "other", log),
    )  # fmt: skip
    assert not minimising._stops_above(oracle, runner, ScriptText("import torch"), Toggles())
    assert asked == ["with the backend eager"] * purposes
