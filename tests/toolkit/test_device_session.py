"""tcdebug bisect on scripts that initialise CUDA, with a simulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from planted_scripts import WRONG_SIN

from tcdebug.minifier.processes.job import FORKED_BEFORE_CUDA, REPLAYED
from tcdebug.supervision.script_search import WHOLE_SCRIPTS

Command = Callable[..., Any]
Script = Callable[[str], str]

INITIALISE = """
torch.cuda.device_count = lambda: 1  # where there is none, its initialisation fails
torch.cuda.is_available = lambda: False  # otherwise Dynamo reads the state of its random numbers
try:
    torch.cuda.init()
except (AssertionError, RuntimeError):
    pass
"""

RUN = """
def f(x):
    return torch.sin(x.cos() + 1).exp()

x = torch.ones(4, 4)
got = torch.compile(f, backend="tcdebug")(x)
raise SystemExit(0 if torch.allclose(got, f(x)) else 1)
"""


OPERATOR = """
@torch.library.custom_op("late::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

twice.register_fake(torch.empty_like)
"""
RUN_OPERATOR = RUN.replace("x.cos()", "twice(x.cos())")


def assert_confirmed(done: Any, candidates: str) -> None:
    """Assert that the sine is named, with one node, and that a note says how candidates ran."""
    report = done.json
    assert (done.status, report["status"]) == (0, "confirmed"), done.stderr
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sin.default"]
    assert report["nodes_after"] == 1
    assert candidates in report["notes"]
    assert WHOLE_SCRIPTS not in report["notes"]


def test_set_up_before_cuda_is_initialised_applies_in_forked_candidates(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(WRONG_SIN + INITIALISE + RUN))
    assert_confirmed(done, FORKED_BEFORE_CUDA)


@pytest.mark.slow
def test_a_default_device_is_in_force_in_the_script_and_not_where_candidates_are_forked(
    tcdebug: Command, script: Script
) -> None:
    text = INITIALISE.replace("try:", "torch.set_default_device('meta')\ntry:")
    check = "assert torch.empty(0).device.type == 'meta'\ntorch.set_default_device(None)\n"
    done = tcdebug("bisect", "--json", script(WRONG_SIN + text + check + RUN))
    assert_confirmed(done, FORKED_BEFORE_CUDA)


@pytest.mark.slow
def test_a_block_with_a_default_device_is_left_where_candidates_are_forked(
    tcdebug: Command, script: Script
) -> None:
    text = """
torch.cuda.device_count = lambda: 1
torch.cuda.is_available = lambda: False
with torch.device("cpu"), torch.device("meta"):
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError):
        pass
    assert torch.empty(0).device.type == "meta"
assert torch.empty(0).device.type == "cpu"
"""
    done = tcdebug("bisect", "--json", script(WRONG_SIN + text + RUN))
    assert_confirmed(done, FORKED_BEFORE_CUDA)


def test_a_mode_that_puts_tensors_on_a_device_is_not_stopped(
    tcdebug: Command, script: Script
) -> None:
    text = """
from torch.overrides import TorchFunctionMode
class OnDevice(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        more = {"device": "cuda"} if function is torch.empty else {}
        return function(*args, **{**(kwargs or {}), **more})
torch.cuda.device_count = lambda: 1
torch.cuda.is_available = lambda: False
with OnDevice():
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError):
        pass
"""
    done = tcdebug("bisect", "--json", script(text + RUN))
    assert done.json["status"] == "no_failure", done.stderr
    assert any("a mode of the script puts tensors on a device" in n for n in done.json["notes"])


def test_set_up_after_cuda_is_initialised_applies_in_replays_of_the_script(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(INITIALISE + WRONG_SIN + RUN))
    assert_confirmed(done, REPLAYED)
    assert done.json["layer"] == "layer.backend"


@pytest.mark.slow
def test_a_graph_with_an_operator_defined_after_cuda_is_initialised_is_searched_in_replays(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(INITIALISE + WRONG_SIN + OPERATOR + RUN_OPERATOR))
    assert_confirmed(done, REPLAYED)


def test_a_graph_that_a_replay_does_not_reach_is_judged_only_as_a_part_of_the_script(
    tcdebug: Command, script: Script
) -> None:
    once = """
import os
if os.path.exists("ran"):
    raise SystemExit(0)
open("ran", "w").close()
"""
    text = INITIALISE + WRONG_SIN + OPERATOR + once + RUN_OPERATOR
    done = tcdebug("bisect", "--json", script(text))
    assert done.json["culprits"] == []
    assert any("graph 0 is judged only as a part of the script" in n for n in done.json["notes"])
