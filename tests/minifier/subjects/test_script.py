"""A whole script that fails: what its exit status and output say."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, Spending
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.repros.verify import verify
from tcdebug.minifier.search.repeats import Rate
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript, _last_exception, outcome_of

PLAIN = """some output
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
ValueError: size 3 is wrong
"""
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
KeyError: 'first'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    f()
torch._dynamo.exc.BackendCompilerFailed: backend='tcdebug' raised:
CompileError: stage lower
more about it

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""
DURING = CHAINED.replace(
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
NOTED = PLAIN + "tcdebug: repro here.py\ntcdebug: next  tcdebug bisect here.py\n"
SYNTAX = """Traceback (most recent call last):
  File "a.py", line 1
    x =
      ^
SyntaxError: invalid syntax
"""
ON_FAKE_TENSORS = """TypeError_%s when making fake tensor call
  Explanation: call_function f: got TypeError('size')"""
"""Dynamo's message, whose first line is all that a repro of a script compares."""
UNEXPLAINED = """Traceback (most recent call last):
  File "a.py", line 9, in <module>
    assert a == b
           ^^^^^^
AssertionError
"""
REJECTED = """Traceback (most recent call last):
  File "cpp_builder.py", line 713, in _run_compile_cmd
    raise exc.CppCompileError(cmd, output) from e
torch._inductor.exc.InductorError: CppCompileError: C++ compile error

Command:
g++ /tmp/a/c1.main.cpp -O3

Output:
/tmp/a/c1.main.cpp: In function 'void kernel(float*)':
/tmp/a/c1.main.cpp:36:44: error: 'class Vectorized<float>' has no member named 'lgamma_'
   36 |   auto tmp17 = tmp16.lgamma_();


Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""
"""What a script prints whose kernel the C++ compiler rejects."""
ELSEWHERE = REJECTED.replace("/tmp/a/c1", "/tmp/b/c2").replace("tmp17", "tmp3")
UNDECLARED = REJECTED.replace("'class Vectorized<float>' has no member named 'lgamma_'", "no type")
GROUP = PLAIN.replace("some output\n", "") + "exited later\n"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (PLAIN, "ValueError: size 3 is wrong"),
        (
            CHAINED,
            "torch._dynamo.exc.BackendCompilerFailed: backend='tcdebug' raised:\n"
            "CompileError: stage lower\nmore about it",
        ),
        (DURING, _last_exception(CHAINED)),
        (SYNTAX, "SyntaxError: invalid syntax"),
        ("no traceback\nbut two lines\n", "but two lines"),
        ("", ""),
    ],
)
def test_the_exception_is_the_end_of_the_last_traceback(text: str, last: str) -> None:
    assert _last_exception(text) == last


def test_output_after_an_exception_is_not_part_of_its_first_line() -> None:
    assert _last_exception(NOTED).splitlines()[0] == "ValueError: size 3 is wrong"
    assert _last_exception(GROUP).splitlines()[0] == "ValueError: size 3 is wrong"


@pytest.mark.parametrize(
    ("status", "text", "outcome"),
    [
        (0, PLAIN, Outcome(Kind.OK, "script")),
        (-11, PLAIN, Outcome(Kind.CRASH, "script", "script | SIGSEGV", "ended by SIGSEGV")),
        (-6, "", Outcome(Kind.CRASH, "script", "script | SIGABRT", "ended by SIGABRT")),
        (
            SCRIPT_FAILED,
            PLAIN,
            Outcome(
                Kind.EXCEPTION,
                "script",
                "script | ValueError | ValueError: size # is wrong",
                "ValueError: size 3 is wrong",
            ),
        ),
        (
            3,
            "output",
            Outcome(Kind.EXCEPTION, "script", "script | exit status 3 | output", "exit status 3"),
        ),
        (
            SCRIPT_FAILED,
            UNEXPLAINED,
            Outcome(
                Kind.EXCEPTION,
                "script",
                "script | AssertionError | AssertionError | assert a == b",
                "AssertionError",
            ),
        ),
    ],
)
def test_how_a_script_ended(status: int, text: str, outcome: Outcome) -> None:
    assert outcome_of(status, text) == outcome


def test_a_script_that_fails_with_different_numbers_has_the_same_bug() -> None:
    first = outcome_of(SCRIPT_FAILED, PLAIN)
    assert first.same_bug(outcome_of(SCRIPT_FAILED, PLAIN.replace("3", "400")))
    assert not first.same_bug(outcome_of(SCRIPT_FAILED, SYNTAX))


def test_two_errors_of_the_cpp_compiler_are_two_bugs() -> None:
    first = outcome_of(SCRIPT_FAILED, REJECTED)
    said = "InductorError: CppCompileError: C++ compile error: <name> has no member named <name>"
    assert first.signature.endswith(f"torch._inductor.exc.{said}")
    assert first.same_bug(outcome_of(SCRIPT_FAILED, ELSEWHERE))
    assert not first.same_bug(outcome_of(SCRIPT_FAILED, UNDECLARED))
    caught = outcome_of(3, REJECTED)
    assert caught.same_bug(outcome_of(3, ELSEWHERE))
    assert not caught.same_bug(outcome_of(3, UNDECLARED)), "a script may print what it caught"


@pytest.mark.usefixtures("warm")
def test_the_repro_of_a_script_runs_a_copy_of_it(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    calm = tmp_path / "calm"
    script.write_text(
        f"import os, sys\nif not os.path.exists({str(calm)!r}):\n"
        f"    raise ValueError({ON_FAKE_TENSORS!r} % len(sys.argv))\n"
    )
    job = Job("search", str(script), ["--steps", "3"], str(tmp_path))
    message = f"ValueError: {ON_FAKE_TENSORS % 3}"
    outcome = Outcome(Kind.EXCEPTION, "script", "script | ValueError", message)
    path = tmp_path / "out" / "repro.py"
    path.parent.mkdir()
    write_repro(job, outcome, ["fuse.inline"], path)
    assert path.with_name("repro_script.py").read_text() == script.read_text()
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc is not None
    assert "culprit   fuse.inline" in doc
    assert "It passes with the culprit switched off: --off=fuse.inline" in doc
    script.unlink()
    done = verify(path)
    assert (done.status, done.reproduced) == (1, True), done.output
    assert "'class': 'ValueError'" in done.output
    assert "raise ValueError" in done.output, "the traceback is shown"
    calm.touch()
    assert verify(path).status == 0
    calm.unlink()
    text = path.read_text()
    path.write_text(text.replace("'what': 'TypeError when", "'what': 'other"))
    assert verify(path).status == 125, "another message is another exception"
    path.write_text(text)
    path.with_name("repro_script.py").write_text("raise ValueError('size 3')")
    assert verify(path).status == 125, "it is another script"
    script.write_bytes(b"pass")
    assert verify(path).status == 125, "so is the one at the place of the first"


@pytest.mark.usefixtures("warm")
def test_a_script_that_ends_with_another_status_is_not_reproduced(tmp_path: Path) -> None:
    script, end = tmp_path / "ends.py", tmp_path / "end.py"
    script.write_text(f"exec(open({str(end)!r}).read())\n")
    job = Job("search", str(script), [], str(tmp_path))
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "repro.py"

    def ends(text: str) -> int:
        end.write_text(text)
        return verify(path).status

    write_repro(job, outcome_of(3, ""), [], path)
    assert ends("raise SystemExit(3)") == 1
    assert ends("raise SystemExit(4)") == 125
    assert ends("import no_such_module") == 125, "an exception is not an exit status"
    assert ends("") == 0
    write_repro(job, outcome_of(3, "loss nan\nFAILED a.py::b - worst 3.5\n1 failed"), [], path)
    fails = "print({!r}); raise SystemExit(3)"
    assert ends(fails.format("FAILED a.py::b - worst 0.25")) == 1
    assert ends(fails.format("ERROR a.py - no such module")) == 125, "it fails for another reason"
    write_repro(job, outcome_of(3, REJECTED), [], path)
    assert ends(fails.format(ELSEWHERE)) == 1
    assert ends(fails.format(UNDECLARED)) == 125, "the C++ compiler rejects it for another reason"
    write_repro(job, outcome_of(1, ""), [], path)
    assert ends("raise SystemExit('different results')") == 1
    assert ends("import no_such_module") == 125, "Python ends with 1 after an exception too"
    write_repro(
        job, outcome_of(SCRIPT_FAILED, "ModuleNotFoundError: No module named 'x'"), [], path
    )
    assert ends("import no_such_module") == 1
    assert ends("raise SystemExit(1)") == 125
    message = "\n=====\ntrain.py FAILED"  # torchrun's begins with an empty line too
    report = f"Traceback (most recent call last):\n  f()\nValueError: {message}"
    write_repro(job, outcome_of(SCRIPT_FAILED, report), [], path)
    assert ends(f"import io, sys; sys.stderr = io.StringIO(); raise ValueError({message!r})") == 1
    assert ends("raise ValueError('size 3')") == 125


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("working", "status"), [("project", 1), ("elsewhere", 125)])
def test_the_repro_of_a_script_runs_where_the_script_ran(
    tmp_path: Path, working: str, status: int
) -> None:
    for folder in ("project/scripts", "elsewhere", "out"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "project" / "settings.txt").write_text("3")
    (tmp_path / "project" / "scripts" / "beside.py").write_text("STATUS = 'size '")
    script = tmp_path / "project" / "scripts" / "fails.py"
    script.write_text(
        "import beside\nraise ValueError(beside.STATUS + open('settings.txt').read())"
    )
    job = Job("search", str(script), [], str(tmp_path))
    outcome = Outcome(Kind.EXCEPTION, "script", "script | ValueError", "ValueError: size 3")
    path = tmp_path / "out" / "repro.py"
    write_repro(job, outcome, [], path, working=tmp_path / working)
    assert verify(path).status == status


@pytest.mark.usefixtures("warm")
def test_a_repro_counts_a_script_as_a_hang_after_the_time_that_it_was_given(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(600)\n")
    job = Job("search", str(script), [], str(tmp_path))
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "repro.py"
    hang = Outcome(Kind.HANG, "script", "script | hang", "no end after 0.5 s", seconds=0.5)
    write_repro(job, hang, [], path)
    assert verify(path).status == 1


@pytest.mark.usefixtures("warm")
def test_the_repro_of_a_script_gives_it_the_file_that_was_its_input(tmp_path: Path) -> None:
    script, sizes = tmp_path / "reads.py", tmp_path / "sizes"
    script.write_text("import sys\nraise ValueError(' '.join(sys.stdin.read().split()))\n")
    sizes.write_text("size\nof\nit\n")
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "repro.py"
    outcome = Outcome(Kind.EXCEPTION, "script", "script | ValueError", "ValueError: size of it")
    ours = os.dup(0)
    with sizes.open() as given:
        os.dup2(given.fileno(), 0)
        try:
            write_repro(Job("search", str(script), [], str(tmp_path)), outcome, [], path)
        finally:
            os.dup2(ours, 0)
            os.close(ours)
    sizes.unlink()
    assert verify(path).status == 1
    assert path.with_name("repro_input").read_text() == "size\nof\nit\n"


SECOND_PROCESS = """
import os
import sys
marker = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "marker")
if os.path.exists(marker):
    raise ValueError("a second process")
open(marker, "w").close()
"""


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("processes", "status"), [(1, 0), (2, 1)])
def test_a_repro_runs_as_many_processes_with_the_same_caches_as_needed(
    tmp_path: Path, processes: int, status: int
) -> None:
    script = tmp_path / "fails.py"
    script.write_text(SECOND_PROCESS)
    job = Job("search", str(script), [], str(tmp_path))
    outcome = Outcome(
        Kind.EXCEPTION, "script", "script | ValueError", "ValueError: a second process"
    )
    path = tmp_path / "out" / "repro.py"
    path.parent.mkdir()
    write_repro(job, outcome, [], path, processes)
    assert verify(path).status == status


SOMETIMES = """
from pathlib import Path
counter = Path("runs")
run = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (run + 1))
if run in (0, 2):
    raise ValueError(f"in run {run}")
"""


def script_oracle(
    folder: Path, text: str, wanted: Criteria, seconds: float = 60.0
) -> CandidateOracle[WholeScript]:
    path = folder / "script.py"
    path.write_text(text.replace('"runs"', repr(str(folder / "runs"))))
    job = Job("search", str(path), [], str(folder), wanted=wanted)
    log = EventLog(folder)
    oracle = Oracle(
        ScriptSubject(job, log), log, Answers(folder / "answers.jsonl"), Limits(seconds),
        Spending(Budget()), wanted, OtherFailures(folder / "other", log),
    )  # fmt: skip
    return CandidateOracle(oracle, WholeScript(str(path)))


@pytest.mark.usefixtures("warm")
def test_an_endless_script_hangs(tmp_path: Path) -> None:
    asked = script_oracle(tmp_path, "import time; time.sleep(600)", Criteria(), 1.0)
    hang = asked.ask(Toggles(), "sleeps")
    assert (hang.kind, hang.signature) == (Kind.HANG, "script | hang")
    assert hang.message == "no end after 1 s"


@pytest.mark.usefixtures("warm")
def test_how_often_a_script_fails_again(tmp_path: Path) -> None:
    oracle = script_oracle(tmp_path, SOMETIMES, Criteria())
    failure = oracle.ask(Toggles(), "fails at first")
    assert failure.signature == "script | ValueError | ValueError: in run #"
    assert oracle.rate(Toggles(), failure, 2) == Rate(1, 2)
    assert oracle.contradicted
    assert oracle.ask(Toggles(), "known to fail") == failure
    assert oracle.oracle.reruns == 3


def test_a_check_command_on_a_script_gets_the_toggles(tmp_path: Path) -> None:
    wanted = Criteria(check='test "$TCDEBUG_OFF" = fuse && grep -q counter')
    oracle = script_oracle(tmp_path, SOMETIMES, wanted)
    assert oracle.ask(Toggles.parse(["fuse"]), "off").kind is Kind.OK
    assert oracle.ask(Toggles(), "on").kind is Kind.BAD
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("warm")
def test_a_script_that_fails_outside_the_criteria_does_not_fail(tmp_path: Path) -> None:
    oracle = script_oracle(tmp_path, SOMETIMES, Criteria(fail_regex="KeyError"))
    assert oracle.ask(Toggles(), "raises ValueError").kind is Kind.INVALID


GATED = """
import tcdebug
import torch

@tcdebug.gated("negate")
def negate(graph):
    graph.call_function(torch.neg, (torch.ones(1),))

def backend(graph, inputs):
    negate(graph.graph)
    return graph

torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
"""


@pytest.mark.usefixtures("warm")
def test_the_runs_of_a_script_keep_no_texts_of_stages(tmp_path: Path) -> None:
    outcome = script_oracle(tmp_path, GATED, Criteria()).ask(Toggles(), "has a gated pass")
    assert "user.negate" in [decision.unit for decision in outcome.decisions]
    assert not (tmp_path / "ir").exists()
