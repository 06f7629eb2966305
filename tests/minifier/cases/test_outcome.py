"""When two failures are the same bug."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import CppCompileError, InductorError

from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.minifier.cases.exception_identity import causes, normalised, root_cause
from tcdebug.minifier.cases.outcome import (
    Kind,
    Outcome,
    RaisedAt,
    crash_signature,
    exception_signature,
    signal_name,
)
from tcdebug.minifier.repros.judge.exceptions import exception_result


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("size 3 and size 14", "size # and size #"),
        ("got 1.5e-07, wanted 2.25", "got #, wanted #"),
        ("tensor(1.) tensor(-2.) [-0.5, -3]", "tensor(#) tensor(#) [#]"),
        ("sizes (2, 3) and [4]", "sizes (#) and [#]"),
        ("n=copy_, placeholders={arg3_1, arg1_1}", "n=copy_, placeholders={...}"),
        ("3-4 of x-1", "#-# of x-#"),
        ("object at 0x7f3a4c00de10", "object at #"),
        ("sources must not be empty for symbol s41", "sources must not be empty for symbol s"),
        ("Could not guard on 16*s0 - u12 < 3 (zuf1)", "Could not guard on #*s - u < # (zuf)"),
        ("buf7 reads arg3_1 and ks0, as int8 of s390x", "buf reads arg and ks, as int8 of s390x"),
        ("no such file: /home/me/a-b/c.cpp", "no such file: <path>"),
        ("no entry for 'aten.tanh' in \"table\"", "no entry for <name> in <name>"),
        ("error: \u2018tmp3\u2019 was not declared", "error: <name> was not declared"),
        ("it's in vmap, which isn't right", "it's in vmap, which isn't right"),
        ("the 'x' of a's key b'y' and 'z'", "the <name> of a's key b<name> and <name>"),
        ("buffer add_12 is read before mul_3", "buffer add is read before mul"),
        ("buffer add is read before mul", "buffer add is read before mul"),
        ("Node add_1 was invalid, but is output", "Node <name> was invalid, but is output"),
        ("Node copy was invalid, but is output", "Node <name> was invalid, but is output"),
        ("float32 is not bfloat16", "float32 is not bfloat16"),
        ("3eb75337635d is not ca60c2b5720b", "# is not #"),
        ("at -1.2345678e-05, not 1.2345678e+05", "at #, not #"),
        ("the facade and feedbeef stay", "the facade and feedbeef stay"),
        ("  first line\nsecond line 2", "first line"),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_normalising_removes_what_differs_between_runs(message: str, plain: str) -> None:
    assert normalised(message) == plain


def test_exceptions_of_operators_on_fake_tensors_have_different_messages() -> None:
    """Dynamo gives all of them the same first line."""
    made = [(torch.ones(3, 3), torch.ones(5, 5)), (torch.ones(4, 4), torch.ones(5, 5))]
    mismatched = [
        exception_signature(caught_compiling(torch.mm, *pair), "forward") for pair in made
    ]
    other = exception_signature(caught_compiling(torch.dot, *made[0]), "forward")
    assert mismatched[0] == mismatched[1] != other
    first = str(caught_compiling(torch.mm, *made[0]))
    assert normalised(first) == normalised(normalised(first))
    assert "same reduction dim" in normalised(first)


def caught_compiling(function: Any, *inputs: torch.Tensor) -> BaseException:
    torch.compiler.reset()
    return caught(lambda: torch.compile(function, backend="eager")(*inputs))


def test_a_long_message_is_cut() -> None:
    assert normalised("x" * 500) == "x" * 160


def test_names_with_and_without_a_suffix_are_one() -> None:
    assert normalised("node mm_17 has no shape") == normalised("node mm has no shape")


def test_a_normalised_message_stays_the_same() -> None:
    once = normalised("at 'x', /tmp/a/b line 12: buf_3 0xff")
    assert once == "at <name>, <path> line #: buf #"
    assert normalised(once) == once


class Planted(Exception):
    pass


def fail(message: str) -> None:
    raise Planted(message)


def wrapped_by_us(message: str) -> None:
    try:
        fail(message)
    except Planted as error:
        raise CompileError("lower", str(error), unit="lower.aten.tanh.default") from error


def caught(raising: object) -> BaseException:
    with pytest.raises(BaseException) as info:
        raising()  # type: ignore[operator] # a function
    return info.value


def test_the_root_cause_is_the_exception_raised_first() -> None:
    error = caught(lambda: wrapped_by_us("no rule for node tanh_3"))
    assert isinstance(error, CompileError)
    assert [type(e).__name__ for e in causes(error)] == ["CompileError", "Planted"]
    assert isinstance(root_cause(error), Planted)


def test_an_exception_without_a_cause_is_its_own_root() -> None:
    error = ValueError("x")
    assert root_cause(error) is error


def test_exceptions_that_cause_each_other_end_with_the_last_new_one() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert list(causes(first)) == [first, second]
    assert exception_result(second)["class"] == "ValueError"


def test_an_exception_that_was_being_handled_is_not_a_cause() -> None:
    def raising() -> None:
        try:
            fail("first")
        except Planted:
            raise KeyError("second") from None

    assert isinstance(root_cause(caught(raising)), KeyError)


def test_a_signature_is_phase_stage_class_frame_and_message() -> None:
    error = caught(lambda: wrapped_by_us("no rule for node tanh_3 of size 7"))
    assert exception_signature(error, "compile") == (
        "compile | lower | Planted | cases/test_outcome.py:fail | no rule for node tanh of size #"
    )


def test_the_file_that_raised_an_exception_is_distinguished_from_others_of_its_name() -> None:
    error = caught(lambda: wrapped_by_us("no rule"))
    signature = exception_signature(error, "compile")
    raised = RaisedAt.of(Outcome(Kind.EXCEPTION, "compile", signature, "Planted: no rule"))
    assert raised.within(Path(__file__))
    assert not raised.within(Path("/elsewhere/test_outcome.py"))
    assert not raised.within(Path(__file__).with_name("outcome.py"))
    assert not raised.within(Path(__file__).with_name("best_outcome.py"))
    assert RaisedAt("Planted", "no rule", "model.py:fail").within(Path("/any/model.py"))
    assert not RaisedAt("Planted", "no rule", "").within(Path(__file__))


def test_an_exception_that_was_never_raised_has_no_frame() -> None:
    assert exception_signature(ValueError("bad 3"), "forward") == "forward | ValueError | bad #"


def test_the_cause_behind_dynamos_wrapper_counts() -> None:
    def backend(module: torch.fx.GraphModule, inputs: object) -> None:
        wrapped_by_us(f"{len(module.graph.nodes)} nodes")

    compiled = torch.compile(lambda x: x.tanh(), backend=backend)
    error = caught(lambda: compiled(torch.ones(3)))
    assert isinstance(error, BackendCompilerFailed)
    assert isinstance(root_cause(error), Planted)
    assert exception_signature(error, "compile") == (
        "compile | lower | Planted | cases/test_outcome.py:fail | # nodes"
    )


def test_a_bug_has_one_signature_on_graphs_of_any_size() -> None:
    signatures = {
        exception_signature(caught(lambda n=n: wrapped_by_us(f"node mul_{n} at {n}")), "compile")
        for n in (1, 2, 300)
    }
    assert len(signatures) == 1


def test_signals_have_names() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(6) == "SIGABRT"
    assert signal_name(99) == "signal 99"
    assert crash_signature(11, "backward") == "backward | SIGSEGV"


def test_only_failures_with_the_same_signature_are_the_same_bug() -> None:
    wrong = Outcome(Kind.WRONG, "forward", "forward | wrong value", "3 of 4 differ")
    again = Outcome(Kind.WRONG, "forward", "forward | wrong value", "1 of 2 differ", seconds=3.0)
    nan = Outcome(Kind.WRONG, "forward", "forward | wrong nan")
    assert wrong.same_bug(again)
    assert not wrong.same_bug(nan)
    assert not wrong.same_bug(Outcome(Kind.OK))
    assert not Outcome(Kind.OK).same_bug(Outcome(Kind.OK))
    assert not Outcome(Kind.INVALID, "eager").same_bug(Outcome(Kind.INVALID, "eager"))


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        (Kind.OK, False),
        (Kind.INVALID, False),
        (Kind.WRONG, True),
        (Kind.EXCEPTION, True),
        (Kind.CRASH, True),
        (Kind.HANG, True),
        (Kind.KILLED, True),
    ],
)
def test_what_counts_as_a_failure(kind: Kind, failed: bool) -> None:
    assert Outcome(kind).failed is failed


def test_a_direction_is_backward_only_in_backward() -> None:
    assert Outcome(Kind.CRASH, "backward").direction == "backward"
    for phase in ("", "compile", "forward", "script"):
        assert Outcome(Kind.CRASH, phase).direction == "forward"


def test_a_frame_in_generated_code_does_not_depend_on_its_file_name(tmp_path: Path) -> None:
    signatures = set()
    for name in ("c7smglgbyxxlerritmp5ssd37y6ne2bu7ofvqhlrxscaz5u7vexo", "d" * 52):
        path = tmp_path / f"{name}.py"
        names: dict[str, Any] = {}
        exec(compile("def call():\n    raise RuntimeError('unhandled')", path, "exec"), names)
        with pytest.raises(RuntimeError) as caught:
            names["call"]()
        signatures.add(exception_signature(caught.value, "forward"))
    assert signatures == {"forward | RuntimeError | <generated>:call | unhandled"}


def test_a_smaller_case_must_be_as_clearly_slow() -> None:
    def slow(times: float) -> Outcome:
        return Outcome(Kind.SLOW, "forward", "forward | slow", times=times)

    assert slow(4.0).still_shown_by(slow(2.0))
    assert not slow(4.0).still_shown_by(slow(1.9))
    assert not slow(4.0).still_shown_by(Outcome(Kind.OK, times=9.0))


def test_a_smaller_case_must_be_wrong_in_as_early_a_call() -> None:
    def wrong(call: int) -> Outcome:
        return Outcome(Kind.WRONG, "forward", "forward | wrong value", call=call)

    assert wrong(3).still_shown_by(wrong(3))
    assert wrong(3).still_shown_by(wrong(1))
    assert not wrong(1).still_shown_by(wrong(2))


def test_a_smaller_case_must_not_differ_by_little_more_than_rounding() -> None:
    def wrong(times: float) -> Outcome:
        return Outcome(Kind.WRONG, "forward", "forward | wrong value", times=times)

    assert wrong(100.0).still_shown_by(wrong(10.0))
    assert not wrong(100.0).still_shown_by(wrong(9.9))
    assert wrong(1.2).still_shown_by(wrong(1.1))
    assert wrong(1.2).still_shown_by(wrong(100.0))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors",
         "CUDA error: an illegal memory access was encountered"),
        ("Triton Error [CUDA]: an illegal memory access was encountered",
         "CUDA error: an illegal memory access was encountered"),
        ("CUDA driver error: misaligned address", "CUDA error: misaligned address"),
        ("CUDA error: device-side assert triggered", "CUDA error: device-side assert triggered"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, 1)`",
         "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79 GiB", "CUDA out of memory"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB", "CUDA out of memory"),
    ],
)  # fmt: skip
def test_a_device_error_has_one_signature_whoever_reports_it(message: str, what: str) -> None:
    signatures = {exception_signature(kind(message), "forward") for kind in (RuntimeError, OSError)}
    assert signatures == {f"forward | {what}"}


def test_a_wrong_address_is_one_bug_whether_it_is_illegal_or_misaligned() -> None:
    illegal, misaligned, assertion = (
        Outcome(Kind.EXCEPTION, "forward", f"forward | CUDA error: {what}")
        for what in (
            "an illegal memory access was encountered",
            "misaligned address",
            "device-side assert triggered",
        )
    )
    assert illegal.same_bug(misaligned) and misaligned.same_bug(illegal)
    assert not illegal.same_bug(assertion)
    backward = Outcome(Kind.EXCEPTION, "backward", "backward | CUDA error: misaligned address")
    assert not illegal.same_bug(backward)


@pytest.mark.parametrize("phase", ["forward", "backward", "script"])
def test_damaged_memory_is_one_bug_whichever_signal_shows_it(phase: str) -> None:
    segfault, abort, bus, arithmetic = (
        Outcome(Kind.CRASH, phase, f"{phase} | {name}")
        for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE")
    )
    assert segfault.same_bug(abort) and abort.same_bug(bus)
    assert not segfault.same_bug(arithmetic)


def test_an_abort_of_a_compiler_is_not_its_segfault() -> None:
    segfault, abort = (
        Outcome(Kind.CRASH, "compile", f"compile | {name}") for name in ("SIGSEGV", "SIGABRT")
    )
    assert not segfault.same_bug(abort)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        ("error: conflicting declaration of \u2018int tmp_acc1_vec\u2019", "<name>"),
        ("error: conflicting declaration of \u2018int tmp_acc2_vec\u2019", "<name>"),
        ("fatal error: no omp.h was found", "no omp.h was found"),
    ],
)
def test_errors_of_the_cpp_compiler_are_one_bug_only_if_its_first_error_is_the_same(
    error: str, what: str
) -> None:
    with pytest.raises(CppCompileError) as raised:
        try:
            raise subprocess.CalledProcessError(1, ["g++", "a.cpp"])
        except subprocess.CalledProcessError as ended:
            raise CppCompileError(["g++"], f"/tmp/a.cpp:14:2: {error}\n x = y;") from ended
    shown = InductorError(raised.value, None)
    assert exception_signature(shown, "forward").endswith(what)
    assert exception_result(shown)["class"] == "CppCompileError"
    assert exception_result(shown)["message"] == f"C++ compile error: {error.partition(': ')[2]}"
