"""tcdebug bisect on scripts that still fail without the first culprit, or only without tcdebug."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
)
from tcdebug.minifier.processes.job import PARTIAL, Job
from tcdebug.reading.run_dir import find
from tcdebug.supervision.remaining_faults import ScriptBeside, with_remaining_faults
from tcdebug.supervision.supervisor import Supervisor, begin

Command = Callable[..., Any]
Script = Callable[[str], str]

NEGATE = """
import tcdebug

@tcdebug.gated("negate")
def negate(graph):
    for node in list(graph.find_nodes(op="call_function", target=torch.sin)):
        node.target = torch.cos

def backend(module, inputs):
    negate(module.graph)
    module.recompile()
    return module.forward

right = torch.compile(lambda x: torch.sin(x) + 1, backend=backend)(torch.zeros(2))[0] == 1
"""

UNGUARDED = """
FACTOR = {0: 2.0}

@torch._dynamo.assume_constant_result
def factor():
    return FACTOR[0]

f = torch.compile(lambda x: x * factor(), backend="eager")
results = [f(torch.ones(2))[0].item()]
FACTOR[0] = 3.0
results.append(f(torch.ones(2))[0].item())
"""

UNCHECKED = """
import tcdebug

@tcdebug.gated("unchecked")
def unchecked(graph):
    for node in list(graph.find_nodes(op="call_function", target=torch.ceil)):
        node.target = torch.clone

def backend(module, inputs):
    unchecked(module.graph)
    module.recompile()
    return module.forward

f = torch.compile(lambda x: torch.ceil(x) + 1, backend=backend)
f(torch.ones(3))
try:
    f(torch.ones(3) > 0)
except NotImplementedError:
    pass
else:
    raise AssertionError("eager rejects booleans")
"""

WITHOUT_TCDEBUG = """
import sys
torch.compile(torch.tanh, backend="eager")(torch.ones(3))
assert "tcdebug.minifier" in sys.modules, "nothing has imported it"
"""

AS_IT_IS = ("--script-seconds", "0", "--json")


@pytest.mark.slow
def test_the_report_says_that_the_script_passes_without_the_culprit(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", *AS_IT_IS, script(NEGATE + "assert right"))
    assert (done.status, [c["unit"] for c in done.json["culprits"]]) == (0, ["user.negate"])
    assert "the script passes with user.negate off" in done.json["notes"]


@pytest.mark.slow
def test_a_fault_of_a_graph_and_one_of_dynamo_are_both_found(
    tcdebug: Command, script: Script
) -> None:
    text = NEGATE + UNGUARDED + "assert right and results == [2.0, 3.0], results"
    report = tcdebug("bisect", *AS_IT_IS, script(text)).json
    units = [c["unit"] for c in report["culprits"]]
    assert (report["status"], units) == ("confirmed", ["user.negate", "layer.dynamo.guards"])
    assert [fault["confirmed"] for fault in report["faults"]] == [True, True]
    assert report["faults"][0]["repro"] != report["faults"][1]["repro"]
    still = (
        "with user.negate off, the script still fails, although it passes in eager: AssertionError"
    )
    assert any(note.startswith(still) for note in report["notes"])


@pytest.mark.slow
def test_inputs_that_only_compiled_code_accepts_lead_to_the_unit(
    tcdebug: Command, script: Script
) -> None:
    report = tcdebug("bisect", *AS_IT_IS, script(UNCHECKED)).json
    assert (report["status"], report["layer"]) == ("confirmed", "layer.backend")
    assert [c["unit"] for c in report["culprits"]] == ["user.unchecked"]
    assert report["failure"]["message"].startswith("eager raises NotImplementedError")
    assert report["nodes_after"] == 1


OTHERWISE_REJECTED = UNCHECKED.replace(
    "    module.recompile()\n",
    """    if inputs[0].dtype is torch.bool and module.graph.find_nodes(
        op="call_function", target=torch.ceil
    ):
        raise TypeError("the backend knows no ceil of booleans")
    module.recompile()
""",
).replace("except NotImplementedError:", "except Exception:")


@pytest.mark.slow
def test_a_suspect_of_accepted_inputs_is_tried_in_the_script(
    tcdebug: Command, script: Script
) -> None:
    """Without the pass, the backend raises another exception, so the graph confirms the layer."""
    report = tcdebug("bisect", *AS_IT_IS, script(OTHERWISE_REJECTED)).json
    assert [c["unit"] for c in report["culprits"]] == ["layer.backend"]
    assert "suspected, but not confirmed: user.unchecked" in report["notes"]
    assert "the script passes with user.unchecked off" in report["notes"]


@pytest.mark.slow
def test_a_script_that_fails_only_without_tcdebug_is_not_healthy(
    cold: Command, script: Script
) -> None:
    done = cold("-m", "tcdebug", "bisect", *AS_IT_IS, script(WITHOUT_TCDEBUG))
    assert (done.status, done.json["status"]) == (1, "unconfirmed")
    assert done.json["failure"]["message"] == "AssertionError: nothing has imported it"
    assert done.json["notes"][0].startswith("it fails only without tcdebug in its process")


COUNTED = """
import os
with open("runs", "a") as file:
    file.write("run\\n")
assert os.environ["TCDEBUG_OFF"] in ("user.a", "user.c")
"""


def naming(unit: str) -> Report:
    """Return the confirmed report of a graph with this culprit."""
    fault = ReportedFault(ReportedFailure("wrong", "forward", ""), [Culprit(unit, "", "", 0)])
    return Report("confirmed", graph=0, faults=[fault])


def beside_a_search(folder: Path, unit: str) -> tuple[Supervisor, ScriptBeside]:
    """Return a command whose search has written the repro of a culprit."""
    (folder / "script.py").write_text(COUNTED)
    job = Job("search", str(folder / "script.py"), [], "")
    supervisor = begin("bisect", job, quiet=True, fresh=True)
    beside = ScriptBeside(supervisor)
    with beside:
        supervisor.meanwhile()
        assert beside._thread is None  # nothing is known yet
        (supervisor.folder / "repro.py").write_text("")
        (supervisor.folder / PARTIAL).write_bytes(msgspec.json.encode(naming(unit)))
        supervisor.meanwhile()
        assert beside._thread is not None
        beside._thread.join()
    return supervisor, beside


@pytest.mark.usefixtures("warm")
def test_a_script_that_passes_beside_the_search_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    supervisor, beside = beside_a_search(tmp_path, "user.a")
    report = with_remaining_faults(supervisor, naming("user.a"), beside)
    assert report.notes == ["the script passes with user.a off"]
    assert (tmp_path / "runs").read_text() == "run\n"
    events = find(str(supervisor.folder)).events()
    purposes = [r["data"]["purpose"] for r in events if r["event"] == "candidate"]
    assert purposes == ["the script with user.a off"]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("suspected", "noted"), [("user.c", ["the script passes with user.c off"]), ("user.d", [])]
)
def test_a_suspect_without_which_the_script_passes_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suspected: str, noted: list[str]
) -> None:
    """The graph of a suspect fails in a different way without it, which the script may not mind."""
    monkeypatch.chdir(tmp_path)
    supervisor, beside = beside_a_search(tmp_path, "user.a")
    note = f"suspected, but not confirmed: {suspected}"
    report = msgspec.structs.replace(naming("user.a"), notes=[note])
    extended = with_remaining_faults(supervisor, report, beside)
    assert extended.notes == [note, "the script passes with user.a off", *noted]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("beside_search", "later"), [("user.b", "user.b"), ("user.a", "user.b")])
def test_a_failure_beside_the_search_and_a_pass_without_other_units_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_search: str, later: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _, beside = beside_a_search(tmp_path, beside_search)
    assert not beside.passed([later])
