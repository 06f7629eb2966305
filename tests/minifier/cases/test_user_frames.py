"""The user's lines in texts that torch writes."""

from __future__ import annotations

import logging

import pytest
import torch
from captured import captured

from tcdebug.minifier.cases.case import user_lines
from tcdebug.minifier.cases.user_frames import (
    guard_at_limit,
    innermost_line,
    lines_of_error,
    raising_stack,
    raising_statement,
)

ERROR = f"""torch._dynamo.exc.Unsupported: Failed to trace builtin operator

from user code:
   File "train.py", line 8, in step
    y = helper(y)
        ^^^^^^^^^
  File "{torch.__path__[0]}/_higher_order_ops/cond.py", line 196, in cond
    return cond_op(pred, true_fn, false_fn, operands)
  File "train.py", line 3, in helper
    print("norm", x.norm().item())

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
  File "elsewhere.py", line 1, in other
    pass
"""


def test_the_lines_at_which_dynamo_raised_are_the_users_innermost_first() -> None:
    assert lines_of_error(ERROR) == [
        'train.py:3 in helper: print("norm", x.norm().item())',
        "train.py:8 in step: y = helper(y)",
    ]


def test_the_stack_in_dynamos_message_does_not_raise() -> None:
    raised = (
        f'Traceback (most recent call last):\n  File "d.py", line 4, in trace\n    fail()\n{ERROR}'
    )
    assert [frame.place for frame in raising_stack(raised)] == ["d.py:4"]
    assert raising_statement(raised) == "fail()"
    assert raising_stack(ERROR) == []


def test_the_last_of_several_errors_counts() -> None:
    second = 'from user code:\n   File "b.py", line 2, in g\n    return x\n'
    assert lines_of_error(ERROR + second) == ["b.py:2 in g: return x"]


def test_text_that_dynamo_did_not_write_has_no_lines() -> None:
    trace = 'Traceback:\n  File "train.py", line 8, in step\n    y = helper(y)\nValueError: no'
    assert lines_of_error(trace) == []


@pytest.mark.parametrize("name", ["train_step_at_7", "torch_dynamo_resume_in_train_step_at_7_at_9"])
def test_the_rest_of_a_function_after_a_graph_break_has_its_name(name: str) -> None:
    frame = f'   File "b.py", line 9, in torch_dynamo_resume_in_{name}\n    return x\n'
    assert lines_of_error(f"from user code:\n{frame}") == ["b.py:9 in train_step: return x"]


def test_an_error_of_the_installed_torch_names_the_line() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    try:
        torch.compile(step, backend="eager", fullgraph=True)(torch.ones(3))
    except Exception as error:
        (line,) = lines_of_error(f"{type(error).__name__}: {error}")
        assert line.endswith("in step: torch._dynamo.graph_break()")
    else:
        raise AssertionError("torch captures what it did not")


def test_the_guard_because_of_which_a_function_is_compiled_again_is_named() -> None:
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("torch._dynamo.convert_frame")
    given = {"name": ""}

    def named(x: torch.Tensor) -> torch.Tensor:
        return x * len(given["name"])  # the log shows this line

    step = torch.compile(named, backend="eager")
    logger.addHandler(handler)
    try:
        with torch._dynamo.config.patch(recompile_limit=2):
            for given["name"] in ("a", "bb", "ccc"):
                step(torch.ones(2))
    finally:
        logger.removeHandler(handler)
    said = guard_at_limit("\n".join(warnings))
    assert said.startswith("named (")
    assert "had been compiled 2 times; the guard that failed last is " in said
    assert said.endswith("['name'] == 'bb'")
    assert guard_at_limit("nothing of the kind") == ""


@pytest.mark.parametrize("by_stance", [True, False])
def test_the_guard_that_asks_for_a_forbidden_compile_is_named(by_stance: bool) -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    step = torch.compile(padded, backend="eager", dynamic=False)
    for size in (2, 3):
        step(torch.ones(size))
    forbidding = (
        torch.compiler.set_stance("fail_on_recompile")
        if by_stance
        else torch._dynamo.config.patch(error_on_recompile=True)
    )
    with forbidding, pytest.raises(Exception, match="ecompil") as raised:
        step(torch.ones(5))
    said = guard_at_limit(
        f"Traceback (most recent call last):\n{raised.type.__name__}: {raised.value}\n"
    )
    assert said.startswith("padded (")
    assert said.endswith(
        f":{padded.__code__.co_firstlineno}) may not be compiled again in this script; the guard "
        "of its newest code that fails is tensor 'x' size mismatch at index 0. expected 3, actual 5"
    )


def test_lines_of_packages_whose_names_begin_like_torch_are_the_users() -> None:
    beside = f"{torch.__path__[0]}vision/ops/boxes.py"
    trace = (
        f'  File "{beside}", line 7, in nms\n    return x\n'
        f'  File "{torch.__path__[0]}/_tensor.py", line 9, in inner\n    return x\n'
    )
    assert innermost_line(trace) == f"{beside}:7"


def test_the_lines_of_a_node_that_torch_s_own_code_calls_are_the_users() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.sin)(x)

    lines = captured(rows, torch.ones(2, 3)).user_lines()
    assert [line.partition(" in ")[2] for line in lines] == [
        "rows: return torch.func.vmap(torch.sin)(x)"
    ]


def test_code_that_torch_generates_has_no_line_of_the_user() -> None:
    generated = '  File "<eval_with_key>.6", line 20, in forward\n    call = backward(x)\n'
    own = '  File "/home/me/train.py", line 13, in backward\n    if g.item() > 0:\n'
    inside = f'  File "{torch.__path__[0]}/_functorch/vmap.py", line 9, in f\n    return x\n'
    assert lines_of_error(f"from user code:\n{own}{generated}{inside}\n\n") == [
        "/home/me/train.py:13 in backward: if g.item() > 0:"
    ]
    graph = torch.fx.symbolic_trace(lambda x: x.sin().cos()).graph
    sin, cos = graph.find_nodes(op="call_method", target="sin") + graph.find_nodes(
        op="call_method", target="cos"
    )
    sin.meta["stack_trace"], cos.meta["stack_trace"] = inside, own + generated
    assert user_lines([sin, cos]) == ["/home/me/train.py:13 in backward: if g.item() > 0:"]
    assert user_lines([sin]) == [f"{torch.__path__[0]}/_functorch/vmap.py:9 in f: return x"]
    sin.meta["stack_trace"] = generated.replace(".6", ".0 from /torch/proxy_tensor.py:9 in wrapped")
    assert user_lines([sin]) == ["line 20 of a generated graph, in forward: call = backward(x)"]
