"""The rounds of a worker, with a judge that compiles nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcdebug.fuzz import hunt as hunt_module
from tcdebug.fuzz.findings import Finding, Findings
from tcdebug.fuzz.hunt import Found, Hunt, simplified
from tcdebug.fuzz.runner import Enough
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.fuzz.worker import database
from tcdebug.strategies.kinds import AnyProgram
from tcdebug.strategies.program import Argument, Program, ProgramStep
from tcdebug.strategies.programs import programs


class Broken:
    """Judges that programs with a sum fail; `programs` are those that it judged."""

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def __call__(self, program: Program) -> ProgramVerdict:
        self.programs.append(program)
        if "sum" in program.ops:
            signature = "compile | lower | planted"
            return ProgramVerdict(Status.FAILED, "exception", "compile", signature)
        return ProgramVerdict(Status.PASSED)


def hunted(folder: Path, start: int, address: str = "") -> tuple[Broken, Found]:
    """The first failure that a hunt finds from this seed."""
    judge = Broken()
    kept = database(address)
    hunt = Hunt(judge, Findings(folder), "tcdebug", lambda program, verdict: None, kept)
    found = hunt.kept()
    while found is None:
        found = hunt.round(start)
        start += 1
    return judge, found


def test_equal_seeds_judge_equal_programs(tmp_path: Path) -> None:
    first, found = hunted(tmp_path, 7)
    second, again = hunted(tmp_path, 7)
    assert [p.key for p in first.programs] == [p.key for p in second.programs]
    assert found == again
    assert "sum" in found.program.ops and len(found.program.ops) <= 2


def judged_in_rounds(hunt: Hunt, judge: Broken, count: int) -> list[str]:
    """The programs of these rounds, without those that were only tried to shrink a failure."""
    drawn: list[str] = []

    def noted(program: AnyProgram, verdict: ProgramVerdict) -> None:
        drawn.append(program.key)

    hunt.on_verdict = noted
    for start in range(count):
        while (found := hunt.round(start)) is not None:
            kept = Finding(found.verdict.signature, "", "tcdebug", "", found.program, "2.13.0")
            hunt.findings.add(kept)
    return drawn


def test_equal_seeds_judge_equal_programs_whatever_is_known(tmp_path: Path) -> None:
    """Another worker, or a database, may know a failure: a round went on only if it was known."""
    _, found = hunted(tmp_path / "before", 7)
    signature, program = found.verdict.signature, found.program
    new, known = Findings(tmp_path / "new"), Findings(tmp_path / "known")
    known.add(Finding(signature, "exception", "tcdebug", "", program, "2.13.0"))
    first, second = (
        judged_in_rounds(Hunt(judge, findings, "tcdebug", lambda p, v: None, None), judge, 2)
        for judge, findings in ((Broken(), new), (Broken(), known))
    )
    assert first == second
    assert len(first) > 45 and len(list(new)) == 1


def test_a_line_that_the_failure_does_not_need_is_removed_although_others_read_it() -> None:
    steps = (
        ProgramStep("v0", "a0 + a1", "add", ("a0", "a1")),
        ProgramStep("v1", "torch.exp(v0)", "exp", ("v0",)),
        ProgramStep("v10", "v1.sum()", "sum", ("v1",)),
    )
    arguments = tuple(Argument(name, "torch.ones(())", "torch.ones(())") for name in ("a0", "a1"))
    made = Program(arguments, steps, ("v10", "v1"), ("v1",))

    def fails(smaller: AnyProgram) -> bool:
        return "sum" in smaller.ops

    small = simplified(made, fails)
    assert isinstance(small, Program)
    assert small.steps == (ProgramStep("v10", "a0.sum()", "sum", ("a0",)),)
    assert (small.arguments, small.outputs, small.exact) == (arguments[:1], ("v10",), ())


def test_a_failure_of_a_known_finding_does_not_end_a_round(tmp_path: Path) -> None:
    judge, found = hunted(tmp_path, 7)
    findings = Findings(tmp_path)
    signature, program = found.verdict.signature, found.program
    assert findings.add(Finding(signature, "exception", "tcdebug", "", program, "2.13.0"))
    told: list[Status] = []
    hunt = Hunt(judge, findings, "tcdebug", lambda p, verdict: told.append(verdict.status), None)
    assert hunt.round(found.seed) is None
    assert Status.KNOWN in told and Status.FAILED not in told


def test_findings_of_other_workers_do_not_stop_shrinking(tmp_path: Path) -> None:
    _, found = hunted(tmp_path / "one", 7)
    signature, findings = found.verdict.signature, Findings(tmp_path / "other")
    finding = Finding(signature, "exception", "tcdebug", "", found.program, "2.13.0")

    class Meanwhile(Broken):
        def __call__(self, program: Program) -> ProgramVerdict:
            if len(self.programs) > first:
                findings.add(finding)
            return super().__call__(program)

    first, judge = found.examples, Meanwhile()
    hunt = Hunt(judge, findings, "tcdebug", lambda program, verdict: None, None)
    again = next(f for f in map(hunt.round, range(7, 16)) if f)
    assert again.program == found.program
    assert list(findings) == [finding]


def test_no_program_is_drawn_when_the_time_for_shrinking_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Program] = []

    def noted(program: Program) -> Program:
        drawn.append(program)
        return program

    monkeypatch.setattr(hunt_module, "programs", lambda **given: programs(**given).map(noted))
    monkeypatch.setattr(hunt_module, "SHRINKING", 0.0)
    judge = Broken()
    hunt = Hunt(judge, Findings(tmp_path), "tcdebug", lambda p, v: None, None)
    found, start = None, 7
    while found is None:
        found = hunt.round(start)
        start += 1
    assert found.program == judge.programs[-1]
    assert drawn[-2].key == found.program.key  # only one was drawn after it


def test_a_worker_stops_after_its_number_of_examples(tmp_path: Path) -> None:
    judge = Broken()
    hunt = Hunt(judge, Findings(tmp_path), "tcdebug", lambda p, v: None, None, examples=2)
    with pytest.raises(Enough):
        for start in range(3):
            hunt.round(start)
    assert hunt.judged == 2


def test_no_program_is_begun_in_the_time_that_is_kept_for_judging_a_failure_again(
    tmp_path: Path,
) -> None:
    judge, end = Broken(), time.monotonic() + 60.0
    hunt = Hunt(judge, Findings(tmp_path), "tcdebug", lambda p, v: None, None, until=end)
    hunt.reserve = 90.0
    with pytest.raises(Enough):
        hunt.round(7)
    assert judge.programs == []


def test_a_failure_is_kept_as_it_is_if_the_time_ends_while_it_is_shrunk(tmp_path: Path) -> None:
    class Late(Broken):
        def __call__(self, program: Program) -> ProgramVerdict:
            if self.failing:
                raise Enough
            verdict = super().__call__(program)
            self.failing = verdict.status is Status.FAILED
            return verdict

        failing = False

    judge = Late()
    hunt = Hunt(judge, Findings(tmp_path), "tcdebug", lambda program, verdict: None, None)
    found = next(f for f in map(hunt.round, range(7, 16)) if f)
    assert found.program == judge.programs[-1]


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a Redis server."""
    fakeredis = pytest.importorskip("fakeredis")
    made = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    made.RequestHandlerClass.disable_nagle_algorithm = True  # else each answer takes 40 ms
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield f"redis://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


def test_machines_share_failures_through_a_database(server: str, tmp_path: Path) -> None:
    _, found = hunted(tmp_path / "one", 0, server)
    assert found.examples > 1
    judge, again = hunted(tmp_path / "other", 770, server)
    assert again.examples == 1, "the first that is judged is what the other machine has kept"
    assert judge.programs[0] == found.program
    _, third = hunted(tmp_path / "third", 1540, server)
    assert third.examples == 1, "it stays there for others"


def test_a_program_in_the_database_is_found_once(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found")
    kept = database(str(tmp_path / "examples"))
    first, second, third = (
        Hunt(Broken(), findings, "tcdebug", lambda program, verdict: None, kept) for _ in range(3)
    )
    found = next(f for f in map(first.round, range(9)) if f)
    assert first.kept() is None  # nor by the worker that has found it
    again = second.kept()
    assert again is not None and again.program == found.program
    signature = found.verdict.signature
    findings.add(Finding(signature, "exception", "tcdebug", "", found.program, "2.13.0"))
    assert third.kept() is None


def test_a_failure_that_no_finding_covers_is_hunted_once(tmp_path: Path) -> None:
    """A failure that a fresh process does not show leaves no finding that covers its program.

    It was shrunk again in each round, without a limit of time.
    """
    met: list[str] = []

    def judge(program: AnyProgram) -> ProgramVerdict:
        met.append(program.key)
        failed = program.key == met[0]
        return ProgramVerdict(Status.FAILED if failed else Status.PASSED, signature="planted")

    hunt = Hunt(judge, Findings(tmp_path), "tcdebug", lambda program, verdict: None, None)
    found = hunt.round(7)
    assert found is not None and found.program.key == met[0]
    assert hunt.round(7) is None
