"""Python programs: how they are drawn, written and made smaller, and what the oracles see."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch_versions import needs_torch

from tcdebug.fuzz.findings import PROGRAM, Finding, Findings, State
from tcdebug.fuzz.python.compiling import Compilation
from tcdebug.fuzz.python.deviation import first_deviation
from tcdebug.fuzz.python.execution import Execution
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.python.standalone import confirmed
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.kinds import script_of
from tcdebug.strategies.python.python_program import CallStep, PythonProgram
from tests.planted_in_dynamo import PLANTED, SLOW, program
from tests.planted_in_features import LEAF
from tests.python_findings import DrawnConstruct
from tests.support.drawn_programs import drawn

FAILING_ONCE = """
from pathlib import Path
import torch

ran = Path(__file__).with_name("ran")
if not ran.exists():  # only the first process has the fault
    ran.touch()
    lookup = torch._dynamo.lookup_backend

    def broken(name):
        def compiler(graph, inputs):
            compiled = lookup(name)(graph, inputs)
            return lambda *values: [
                result + 1 if isinstance(result, torch.Tensor) else result
                for result in compiled(*values)
            ]

        return compiler

    torch._dynamo.lookup_backend = broken
"""
SCRIPTS = Path(__file__).parents[2] / "scripts"


def judged(made: PythonProgram, folder: Path, backend: str = "eager") -> tuple[Status, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = judge_python(made, backend, lambda phase: None, folder)
    return verdict.status, verdict.signature


def test_the_programs_of_a_fixed_seed_run_in_eager_twice_with_the_same_results(
    tmp_path: Path,
) -> None:
    made = drawn(25, 1)
    for each in made:
        first, second = (Execution(each, tmp_path / "p.py", lambda f: f).states() for _ in "12")
        assert first_deviation(first, second, "eager") is None, each.source()
    assert sum(len(each.steps) > 1 for each in made) == 25
    assert len({feature for each in made for feature in each.ops}) > 20


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in PLANTED]
)
def test_a_fault_planted_in_dynamo_or_aotautograd_is_detected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = PLANTED[name]
    if not hasattr(unit.place, unit.name):
        pytest.skip(f"this torch has no {unit.name}")
    assert judged(unit.program, tmp_path, unit.backend) == (Status.PASSED, "")
    monkeypatch.setattr(unit.place, unit.name, unit.fault(getattr(unit.place, unit.name)))
    status, signature = judged(unit.program, tmp_path, unit.backend)
    assert status is Status.FAILED
    assert "<locals>" not in signature  # the fault itself must not raise
    assert ("stale graph" in signature) == name.startswith("missing guard")


@pytest.mark.parametrize("backward", [False, True])
def test_a_wrong_result_is_one_bug_whether_or_not_backward_runs(
    backward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another signature, it would be reported twice, and its program would keep backward."""
    made = program(
        "return [x * SCALE]", "SCALE = 3", definitions="SCALE = 2", first=LEAF, backward=backward
    )
    fault = PLANTED["missing guard of a constant"]
    monkeypatch.setattr(fault.place, fault.name, fault.fault(getattr(fault.place, fault.name)))
    assert judged(made, tmp_path) == (Status.FAILED, "forward | stale graph: wrong result")


def test_an_exception_of_the_program_must_have_the_same_class_and_side_effects(
    tmp_path: Path,
) -> None:
    raising = program(
        "LOG.append(n)\nif n > 1:\n    raise ValueError('drawn')\nreturn x", "n = 2",
        definitions="LOG = []",
    )  # fmt: skip
    states = Execution(raising, tmp_path / "p.py", lambda f: f).states()
    assert [type(state.error).__name__ for state in states] == ["NoneType", "ValueError"]
    assert judged(raising, tmp_path) == (Status.PASSED, "")
    other = Execution(raising, tmp_path / "p.py", lambda f: f).states()
    other[1] = dataclasses.replace(other[1], error=None)
    found = first_deviation(states, other, "eager")
    assert found is not None and found.what == "lost exception"


def test_a_program_that_eager_does_not_define_is_invalid(tmp_path: Path) -> None:
    assert judged(program("return x * missing"), tmp_path)[0] is Status.INVALID
    assert judged(program("return return"), tmp_path)[0] is Status.INVALID


def test_an_equal_call_that_compiles_again_is_a_failure(tmp_path: Path) -> None:
    equal = program("return x * 2")
    eager = Execution(equal, tmp_path / "p.py", lambda f: f, lambda: 0).states()
    counts = iter((1, 2))
    again = Execution(equal, tmp_path / "p.py", lambda f: f, lambda: next(counts)).states()
    found = first_deviation(eager, again, "eager")
    assert found is not None and found.what == "recompile"


def test_a_class_that_each_call_makes_may_be_compiled_again(tmp_path: Path) -> None:
    making = program("class Local:\n    level = n\nreturn x * Local().level")
    assert judged(making, tmp_path) == (Status.PASSED, "")


def test_a_finding_with_a_python_program_is_read_as_it_was_written(tmp_path: Path) -> None:
    finding = Finding("forward | wrong result", "wrong", "eager", "", drawn(5, 3)[-1], "2.13.0")
    assert Findings(tmp_path).add(finding)
    assert list(Findings(tmp_path)) == [finding]


@pytest.mark.slow
def test_the_script_of_a_finding_fails_in_a_fresh_process_only_with_the_fault(
    tmp_path: Path,
) -> None:
    name = "lost side effects"
    made = PLANTED[name].program
    finding = Finding("forward | wrong side effect", "wrong", "eager", "", made, "2.13.0")
    text = script_of(made, {"backend": "eager"}, 0)
    (tmp_path / PROGRAM).write_text(text)
    assert confirmed(finding, tmp_path).note.startswith("the script passes")
    setup = tmp_path / "setup.py"
    root = str(SCRIPTS.parents[1])
    setup.write_text(
        f"import sys\nsys.path.insert(0, {root!r})\n"
        f"from tests.planted_in_dynamo import PLANTED\nPLANTED[{name!r}].plant()\n"
    )
    note = confirmed(finding, tmp_path, str(setup)).note
    assert note == "the script fails in a fresh process", (tmp_path / "log.txt").read_text()
    assert "ITEMS" in (tmp_path / "log.txt").read_text()


def test_a_campaign_judges_python_programs(tcdebug: Any, tmp_path: Path) -> None:
    done = tcdebug(
        "fuzz", "run", "--programs=python", "--backend=eager", "--examples=3", "--seed=2", "--json",
        "-q", "-j1",
    )  # fmt: skip
    assert done.status == 0, done.stdout + done.stderr
    numbers = json.loads(done.stdout)
    assert (numbers["examples"], numbers["valid"], numbers["passed"]) == (3, 1.0, 3)


def test_an_equal_call_in_another_mode_may_compile_again(tmp_path: Path) -> None:
    """The program itself changes grad mode, the default dtype or determinism for the next call."""
    for change in (
        "torch.set_grad_enabled(False)",
        "torch.set_default_dtype(torch.float64)",
        "torch.use_deterministic_algorithms(True)",
    ):
        changing = program(f"{change}\nreturn x * 2")
        states = Execution(changing, tmp_path / "p.py", lambda f: f).states()
        assert [state.repeats for state in states] == [False, False], change
    states = Execution(program("return x * 2"), tmp_path / "p.py", lambda f: f).states()
    assert [state.repeats for state in states] == [False, True]


def test_a_second_thread_has_its_own_modes_in_all_its_calls(tmp_path: Path) -> None:
    body = "torch.set_grad_enabled(False)\nreturn [x * torch.is_grad_enabled(), x * n]"
    first, second = program(body).steps
    steps = (msgspec.structs.replace(first, thread=True), second, CallStep((), "", thread=True))
    threaded = msgspec.structs.replace(program(body), steps=steps)
    states = Execution(threaded, tmp_path / "p.py", lambda f: f).states()
    assert [state.repeats for state in states] == [False, False, False]
    assert [state.modes[0] for state in states] == [False, False, False]
    assert torch.is_grad_enabled()
    assert judged(threaded, tmp_path) == (Status.PASSED, "")
    text = script_of(threaded, {"backend": "eager"}, 0)
    assert text.count("yield lambda: in_second_thread(lambda: program(x, y, n), lambda: ") == 2
    compile(text, "program.py", "exec")


def test_rounding_that_a_cancellation_leaves_is_no_failure(tmp_path: Path) -> None:
    large = "BIG = torch.full((3,), 1000.0)\nSMALL = torch.zeros(3)"
    states = [
        Execution(
            program(f"SMALL.add_({n})\nreturn x", definitions=large),
            tmp_path / "p.py",
            lambda f: f,
        ).states()
        for n in (0.0, 0.005, 0.05)
    ]
    assert first_deviation(states[0], states[1], "eager") is None
    found = first_deviation(states[0], states[2], "eager")
    assert found is not None and found.what == "wrong side effect"


@needs_torch("2.12", "eager returns an inference tensor")
def test_the_result_of_a_transform_in_inference_mode_may_be_an_inference_tensor(
    tmp_path: Path,
) -> None:
    """The documentation says that it is one, but eager's `torch.func.grad` returns another."""
    transform = "torch.func.grad(lambda v: (v * v).sum())(x * 1.0)"
    mode = "torch.inference_mode()"
    around = program(f"return [{transform}]", mode=mode)
    inside = program(f"with {mode}:\n    v = {transform}\nreturn [v]")
    for each in (around, inside):
        states = Execution(each, tmp_path / "p.py", lambda f: f).states()
        assert not any(layout.inference for layout in states[-1].layouts.values())
        assert judged(each, tmp_path, "aot_eager") == (Status.PASSED, "")
    lost = program(f"with {mode}:\n    v = x * 1.0\nreturn [v]")
    assert judged(lost, tmp_path, "aot_eager")[1] == "forward | wrong inference tensor"


def test_a_view_whose_history_autograd_forbids_to_read_is_part_of_the_state(
    tmp_path: Path,
) -> None:
    written = program(
        "with torch.no_grad():\n    v = x.view(-1)\nx.mul_(2)\nreturn [v]",
        first=("x = torch.ones(2, 3, requires_grad=True) * 2", "y = x[0]", "n = 1"),
    )  # fmt: skip
    (state, _) = Execution(written, tmp_path / "p.py", lambda f: f).states()
    assert state.error is None
    assert {layout.recorded for layout in state.layouts.values()} == {True}
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(script_of(written, {"backend": "eager"}, 0), "program.py", "exec"), names)
    step, *_ = names["calls"](names["program"])
    ((text, values, _),) = names["described"](step[0](), ()).values()
    assert (text, values) == ("torch.float32 (True, 'forbidden')", [4.0] * 6)


def test_a_program_that_aotautograd_does_not_handle_yet_is_discarded(tmp_path: Path) -> None:
    aliased = program(
        "x.data.add_(2.0)\nreturn [y + y]",
        first=("x = torch.arange(6.0).reshape(2, 3)", "y = x.detach()", "n = 1"),
    )
    assert judged(aliased, tmp_path, "aot_eager") == (Status.DISCARDED, "")


@pytest.mark.parametrize("rows", [0, 2])
def test_a_double_backward_of_a_compiled_graph_is_no_failure(rows: int, tmp_path: Path) -> None:
    """AOTAutograd refuses it, in words only if there are elements. A later torch captures it."""
    twice = program(
        "leaf = x.detach().requires_grad_()\n"
        "(first,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)\n"
        "torch._dynamo.graph_break()\nreturn [torch.autograd.grad(first.sum(), leaf)[0]]",
        first=(f"x = torch.ones({rows}, 3)", "y = x", "n = 1"),
    )
    assert judged(twice, tmp_path, "aot_eager")[0] is not Status.FAILED


@needs_torch("2.12", "this program passes")
def test_the_folder_of_a_worker_is_not_part_of_a_signature(tmp_path: Path) -> None:
    made = DrawnConstruct(
        "thread local", then="graph break", later_mode="torch.device('cpu')"
    ).program()
    signatures = []
    for name in ("worker-0", "worker-1"):
        (tmp_path / name).mkdir()
        signatures.append(judged(made, tmp_path / name)[1])
    assert signatures[0] == signatures[1]
    assert "program.py:program" in signatures[0]


def test_a_scalar_of_numpy_that_is_an_array_when_compiled_is_no_failure(tmp_path: Path) -> None:
    whole = ("x = torch.ones(2, 3)", "y = torch.tensor(3)", "n = 1")
    made = DrawnConstruct("scalar of an array", wanted=("y",), first=whole).program()
    assert judged(made, tmp_path) == (Status.PASSED, "")


def test_parameters_of_an_exported_program_are_constants(tmp_path: Path) -> None:
    weight = "WEIGHT = torch.nn.Parameter(torch.ones(3))"
    exported = msgspec.structs.replace(
        program("return x * WEIGHT", definitions=weight), way="torch.export"
    )
    assert judged(exported, tmp_path)[0] is Status.DISCARDED


def test_a_script_compares_numbers_up_to_rounding_and_attributes_of_tensors() -> None:
    text = script_of(program("return x * 2"), {"backend": "eager"}, 0)
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "program.py", "exec"), names)
    differ = names["differ"]
    assert not differ([1.0, "a", float("nan")], [1.00001, "a", float("nan")])
    assert not differ({"b": float("inf")}, {"b": float("inf")})
    assert differ([1.0], [1.01]) and differ([1.0], ["1.0"]) and differ({"b": 1.0}, {})
    assert differ(["torch.float32", [1.0]], ["torch.float64", [1.0]])
    plain, marked = torch.ones(2), torch.ones(2)
    marked.mark = marked._hidden = 2  # type: ignore[attr-defined]
    found = names["described"](plain, ()), names["described"](marked, ())
    assert found[0] == ["torch.float32 (False, True)", [1.0, 1.0], {}]
    assert found[1] == ["torch.float32 (False, True)", [1.0, 1.0], {"mark": "2"}]
    assert differ(*found)


@pytest.mark.slow
def test_the_script_of_a_finding_runs_in_two_processes_that_share_their_caches(
    tmp_path: Path,
) -> None:
    """A file in the folder of the caches makes the second process fail."""
    counting = "import os, sys\nMARK = os.path.join(os.environ['TCDEBUG_CACHE_DIR'], 'mark')"
    made = msgspec.structs.replace(
        program("return x * SCALE", definitions="SCALE = 2.0"), way="second process"
    )
    text = script_of(made, {"backend": "eager"}, 0)
    fails = "if SCALE == 2.0:\n        os.path.exists(MARK) and sys.exit(1)\n"
    main = f"def main():\n    {counting.replace(chr(10), chr(10) + '    ')}\n    {fails}"
    path = tmp_path / PROGRAM
    path.write_text(text.replace("def main():\n", f"{main}        open(MARK, 'w').close()\n"))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "the second process fails")


@pytest.mark.slow
def test_a_failure_that_does_not_occur_in_a_fresh_process_is_no_finding(
    tcdebug: Any, tmp_path: Path
) -> None:
    setup = tmp_path / "setup.py"
    setup.write_text(FAILING_ONCE)
    done = tcdebug(
        "fuzz", "run", "--programs=python", "--backend=eager", "--examples=1", "--seconds=60",
        "--seed=2", f"--setup={setup}", "--json", "-q", "-j1", "--no-bisect",
    )  # fmt: skip
    assert done.status == 0, done.stdout + done.stderr
    numbers = json.loads(done.stdout)
    assert (numbers["failed"], numbers["findings"], numbers["new"]) == (1, 0, [])
    assert numbers["not_reproduced"] == 1
    (kept,) = Findings(tmp_path / ".tcdebug" / "findings")
    assert kept.state is State.NOT_REPRODUCED
    assert kept.note == "the script passes; the fuzzer's oracle passes in a fresh process"


def test_failures_that_were_not_reproduced_are_counted_apart() -> None:
    tally = CampaignTally()
    event = {"signature": "forward | wrong result", "ops": ["add"], "path": "", "note": ""}
    tally.feed([{"event": "fuzz.not_reproduced", "data": event}])
    assert (tally.summary.findings, tally.summary.not_reproduced) == (0, 1)


def test_a_program_that_reads_the_last_result_may_compile_again(tmp_path: Path) -> None:
    reading = program("globals()['LEVEL'] = 2.0\nreturn x * 2", definitions="LEVEL = 2.0")
    assert judged(reading, tmp_path) == (Status.PASSED, "")


@pytest.mark.parametrize(
    ("body", "definitions", "what"),
    [
        ("warnings.warn('drawn')\nreturn x * 2", "import warnings", "wrong warnings"),
        ("return x * 2", "", "objects alive"),
    ],
)
def test_warnings_of_a_call_and_tensors_that_live_on_must_be_those_of_eager(
    body: str, definitions: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(body, "n = 2", definitions=definitions)
    assert judged(made, tmp_path) == (Status.PASSED, "")
    kept: list[object] = []
    lookup = torch._dynamo.lookup_backend

    def faulty(name: str) -> object:
        def compiler(graph: torch.fx.GraphModule, inputs: list[object]) -> object:
            compiled = lookup(name)(graph, inputs)

            def call(*values: object) -> object:
                if what == "objects alive":
                    kept.extend(values)
                else:
                    warnings.warn("drawn by the compiler", stacklevel=1)
                return compiled(*values)

            return call

        return compiler

    monkeypatch.setattr(torch._dynamo, "lookup_backend", faulty)
    status, signature = judged(made, tmp_path)
    assert status is Status.FAILED
    assert signature.endswith(what)


def test_random_numbers_of_inductor_are_those_of_eager(tmp_path: Path) -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(torch._inductor.config.fallback_random)
        return graph

    made = program("return x + torch.rand(3)", "torch.manual_seed(7)")
    Compilation(made, tmp_path / "program.py", backend).compiled()
    assert seen == [True]
    setting = "torch._inductor.config.fallback_random = True"
    backends = ("inductor", "eager")
    assert [setting in script_of(made, {"backend": b}, 0) for b in backends] == [True, False]
