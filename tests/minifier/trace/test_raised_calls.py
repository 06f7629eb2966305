"""Which exceptions that leave compiled functions are one error that Dynamo has wrapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.identity import compile_is_identity
from tcdebug.minifier.capture.watching.calls import raised_calls_noted
from tcdebug.minifier.trace.raised_calls import wrapped_alike

OFF = ("layer.dynamo",)
Program = Callable[[], Any]


def product(x: torch.Tensor) -> torch.Tensor:
    return x.sin() @ torch.ones(5, 2)


@torch.library.custom_op("tcdebug_raised_calls::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("the fake implementation does not support this shape")


def wrong_shape_in_the_second_call() -> None:
    step = torch.compile(product, backend="eager", dynamic=False)
    step(torch.ones(3, 5))
    step(torch.ones(3, 4))


def wrong_shape_in_a_module_of_torch() -> None:
    torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 2)), backend="eager")(torch.ones(3, 5))


def wrong_shape_in_a_helper_that_is_compiled_too() -> None:
    inner = torch.compile(product, backend="eager")

    def step(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = inner(x)
        return result

    torch.compile(step, backend="eager")(torch.ones(3, 4))


def error_of_a_fake_kernel() -> None:
    torch.compile(lambda x: twice(x), backend="eager")(torch.ones(3))


def error_of_a_fake_kernel_before_a_wrong_shape() -> None:
    step = torch.compile(lambda x: product(twice(x)), backend="eager")
    step(torch.ones(3, 4))


def wrong_shape_after_an_error_of_a_fake_kernel() -> None:
    step = torch.compile(lambda x: twice(x) if len(x) == 5 else product(x), backend="eager")
    for size in (5, 4):
        try:
            step(torch.ones(size))
        except Exception as error:
            raise ValueError("a batch failed") from error


def another_error_for_being_compiled() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            raise ValueError("compiled" if torch.compiler.is_compiling() else "in eager")
        return x

    torch.compile(step, backend="eager", fullgraph=True)(torch.ones(3))


def noted_in_both(program: Program, folder: Path) -> bool:
    """Whether the error of a program in eager is that of the compiled program."""
    log = EventLog(folder)
    for off in (OFF, ()):
        with pytest.raises(Exception, match=r"."):
            if off:
                with compile_is_identity(log), raised_calls_noted(off, log):
                    program()
            else:
                with raised_calls_noted(off, log):
                    program()
    return wrapped_alike(folder, OFF, ())


@pytest.mark.parametrize(
    "program",
    [
        wrong_shape_in_the_second_call,
        wrong_shape_in_a_module_of_torch,
        wrong_shape_in_a_helper_that_is_compiled_too,
    ],
)
def test_an_error_of_the_program_is_the_same_when_dynamo_wraps_it(
    program: Program, tmp_path: Path
) -> None:
    assert noted_in_both(program, tmp_path)


@pytest.mark.parametrize(
    "program",
    [
        error_of_a_fake_kernel_before_a_wrong_shape,
        wrong_shape_after_an_error_of_a_fake_kernel,
        another_error_for_being_compiled,
    ],
)
def test_an_error_that_only_a_compile_has_is_another_error(
    program: Program, tmp_path: Path
) -> None:
    assert not noted_in_both(program, tmp_path)


def test_a_program_that_raises_only_when_it_is_compiled_has_no_error_in_eager(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    with compile_is_identity(log), raised_calls_noted(OFF, log):
        error_of_a_fake_kernel()
    with raised_calls_noted((), log), pytest.raises(RuntimeError, match="fake implementation"):
        error_of_a_fake_kernel()
    assert not wrapped_alike(tmp_path, OFF, ())


def test_an_exception_that_is_handled_during_a_call_has_not_left_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    with raised_calls_noted((), log):
        try:
            raise KeyError("x")
        except KeyError:
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert not [*tmp_path.glob("events*.jsonl")]
