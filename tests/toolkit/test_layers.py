"""tcdebug bisect on scripts that fail, or pass, only as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.minifier.investigation.script_failure import NONE_ALONE
from tcdebug.supervision.eager_failures import ONCE_PASSED

Command = Callable[..., Any]
Script = Callable[[str], str]

UNGUARDED = """
FACTOR = {0: 2.0}

@torch._dynamo.assume_constant_result
def factor():
    return FACTOR[0]

f = torch.compile(lambda x: x * factor())
results = [f(torch.ones(2))[0].item()]
FACTOR[0] = 3.0
results.append(f(torch.ones(2))[0].item())
assert results == [2.0, 3.0], results
"""

AS_IT_IS = ("--script-seconds", "0")
"""The script is not made small."""

ONE_KEY = """
import os
from torch._functorch._aot_autograd import autograd_cache
right = autograd_cache.autograd_cache_key
autograd_cache.autograd_cache_key = lambda *a, **k: ("a" * 52, right(*a, **k)[1])
marker = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "first")
first = not os.path.exists(marker)
open(marker, "w").close()
f, expected = (lambda x: x + 1, 4.0) if first else (lambda x: x * 2, 6.0)
assert torch.compile(f)(torch.full((8,), 3.0))[0].item() == expected
"""

HEALTHY = """
linear = torch.nn.Linear(4, 4)

@torch.compile(backend="aot_eager")
def f(x):
    assert torch.compiler.is_compiling(), "it has to be compiled"
    h = linear(x)
    return torch.cond(h.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (h,))

f(torch.ones(2, 4))
"""


ENDLESS_CAPTURE = """
class Countdown:
    n = 3

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        if not torch.compiler.is_compiling():
            self.n -= 1
        return self.n

@torch.compile(backend="eager")
def f(x):
    for i in Countdown():
        x = x + i
    return x

f(torch.ones(2))
"""


TOO_STRICT = """
import copy

def in_one_rounding(module, inputs):
    wide = copy.deepcopy(module).double()
    return lambda *values: [out.float() for out in wide(*(v.double() for v in values))]

def f(x):
    return x.sin() * x.cos() + x.exp() / 3

x = torch.linspace(-3, 3, 64)
result = torch.compile(f, backend=in_one_rounding)(x)
assert torch.equal(result, f(x)), "the bits differ"
"""


FLOAT64_TOO_STRICT = (
    TOO_STRICT.replace("return lambda", "last = 1 + 2**-52\n    return lambda")
    .replace("out.float() for", "out * last for")
    .replace("linspace(-3, 3, 64)", "linspace(-3, 3, 64, dtype=torch.float64)")
)


AT_TIMES = """
import os
marker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "in eager")
torch.compile(torch.tanh, backend="eager")(torch.ones(3))
first = os.environ.get("TCDEBUG_OFF") == "layer.dynamo" and not os.path.exists(marker)
if first:
    open(marker, "w").close()
assert first, "as if at random"
"""


@pytest.mark.slow
def test_a_script_that_fails_at_times_in_eager_too_has_no_layer(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(AT_TIMES))
    report = done.json
    assert (done.status, report["status"]) == (5, "fails_in_eager")
    assert report["culprits"] == []
    assert "it fails in some runs only: in eager run 1 passed, and run 2 failed" in report["notes"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [TOO_STRICT, FLOAT64_TOO_STRICT])
def test_a_script_that_rejects_correct_rounding_has_no_culprit(
    tcdebug: Command, script: Script, text: str
) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(text))
    report = done.json
    assert (done.status, report["status"], report["confirmed"]) == (1, "unconfirmed", False)
    assert report["culprits"] == []
    assert any("rejects correctly rounded results" in note for note in report["notes"])


@pytest.mark.slow
def test_the_operator_that_a_script_wants_rounded_as_in_eager_is_named(
    tcdebug: Command, script: Script
) -> None:
    text = """
f = lambda x: (x.relu() * 3).tanh().exp()
x = torch.linspace(-3, 3, 1000)
assert torch.equal(torch.compile(f)(x), f(x))
"""
    report = tcdebug("bisect", "--json", *AS_IT_IS, script(text)).json
    assert (report["status"], report["culprits"]) == ("unconfirmed", [])
    assert any(
        note.startswith("the difference in rounding comes from these units; with them off, ")
        and "lower.aten.exp.default" in note
        for note in report["notes"]
    ), report["notes"]


@pytest.mark.slow
def test_a_capture_that_does_not_end_is_a_fault_of_dynamo(tcdebug: Command, script: Script) -> None:
    done = tcdebug("bisect", "--json", "--timeout", "8", *AS_IT_IS, script(ENDLESS_CAPTURE))
    assert done.stdout, done.stderr
    report = done.json
    assert (done.status, report["status"], report["layer"]) == (0, "confirmed", "layer.dynamo")
    assert report["failure"]["kind"] == "hang"
    assert report["faults"][0]["fails"] and report["faults"][0]["passes"]
    assert [rung["off"] for rung in report["ladder"]] == [["layer.dynamo"], ["layer.autograd"]]
    (note,) = (n for n in report["notes"] if n.startswith("a capture by Dynamo did not end. "))
    assert re.search(r"It was at \S*/script\.py:", note)


@pytest.mark.slow
def test_a_missing_guard_is_found_and_the_repro_shows_it(
    tcdebug: Command, python: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(UNGUARDED))
    report = done.json
    assert done.status == 0, done.stderr
    assert report["layer"] == "layer.dynamo.guards"
    assert report["faults"][0]["passes"] == "python repro.py --off=layer.dynamo.guards"
    assert {rung["backend"]: rung["outcome"] for rung in report["ladder"]} == {
        "in eager": "ok",
        "eager": "exception",
        "with the backend eager and every call recompiled": "ok",
        "with every call recompiled": "ok",
    }
    assert report["reruns"] > 5, "the runs of the search for the statement count too"
    assert report["script"]["lines_after"] <= report["script"]["lines_before"] == 10
    assert python(report["faults"][0]["short"]).status == 1
    assert python(report["repro"]).status == 1
    assert python(report["repro"], "--off=layer.dynamo.guards").status == 0
    assert python(report["repro"], "--off=layer.cache").status == 1


@pytest.mark.slow
def test_a_cache_that_only_a_second_process_reads_is_found(
    tcdebug: Command, script: Script
) -> None:
    # torch reads the variable at import, and the warm interpreter has imported it with 0
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(ONE_KEY), TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    assert done.status == 0, done.stderr
    assert done.json["layer"] == "layer.cache.aotautograd"
    entry = f"uses the entry {'a' * 52}, which compile 0/0 of process 1 saved, but is different"
    assert any(entry in note for note in done.json["notes"])


REGISTERED_TWICE = """
def register(schema):
    library = torch.library.Library("planted", "FRAGMENT")
    library.define("record" + schema)
    library.impl("record", lambda out, x: (out.copy_(x * 2), None)[1], "CPU")
    library.impl("record", lambda out, x: None, "Meta")
    return library

def step(out, x):
    torch.ops.planted.record(out, x)
    return x + 1

library = register("(Tensor out, Tensor x) -> ()")
torch.compile(step)(torch.zeros(4), torch.ones(4))
library._destroy()
torch._dynamo.reset()
library, out = register("(Tensor(a!) out, Tensor x) -> ()"), torch.zeros(4)
torch.compile(step)(out, torch.ones(4))
assert out.tolist() == [2.0] * 4, "the cached code"
"""


@pytest.mark.slow
def test_a_cache_is_at_fault_although_a_graph_before_has_a_wrong_registration(
    tcdebug: Command, script: Script
) -> None:
    name = script(REGISTERED_TWICE)
    done = tcdebug("bisect", "--json", *AS_IT_IS, name, TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    assert done.status == 0, done.stderr
    assert done.json["layer"] == "layer.cache.aotautograd"
    assert NONE_ALONE not in done.json["notes"]
    before = "graph 0 fails too, but the script passes with layer.cache off: the custom operator "
    assert any(note.startswith(before) for note in done.json["notes"])


IN_FORKS_ONLY_COMPILED = """
import sys
from torch._dynamo.variables.lists import ListVariable
own = ListVariable.call_method

def appending(self, tx, name, args, kwargs):
    args, name = (args[1:], "append") if name == "insert" else (args, name)
    return own(self, tx, name, args, kwargs)

ListVariable.call_method = appending

@torch.compile(backend="eager")
def order(x):
    items = [x]
    items.insert(0, x + 1)
    return items

warm = "tcdebug.minifier.processes.warm.server" in sys.orig_argv
assert warm and order(torch.zeros(1))[0].item() == 1.0, "the order"
"""


@pytest.mark.slow
def test_fresh_processes_are_believed_where_they_contradict_forks(
    cold: Command, script: Script
) -> None:
    done = cold("-m", "tcdebug", "bisect", "--json", *AS_IT_IS, script(IN_FORKS_ONLY_COMPILED))
    assert (done.status, done.json["status"]) == (5, "fails_in_eager"), done.stderr
    assert done.json["culprits"] == []
    what = "the layer is searched for in fresh processes"
    assert any(note.startswith(what) for note in done.json["notes"]), done.json["notes"]


ONCE_ONLY = """
import os
import sys

if os.path.exists("checkpoint.pt"):
    sys.exit("checkpoint.pt exists")
model = torch.nn.Linear(2, 2)
torch.compile(model)(torch.ones(2)).sum().backward()
torch.save(model.state_dict(), "checkpoint.pt")
"""


@pytest.mark.slow
def test_a_healthy_script_that_runs_once_only_is_not_said_to_fail_in_eager(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(ONCE_ONLY))
    assert (done.status, done.json["status"]) == (1, "unconfirmed"), done.stderr
    assert done.json["culprits"] == []
    assert ONCE_PASSED in done.json["notes"]


@pytest.mark.slow
def test_a_script_that_fails_in_eager_alone_does_not_fail(tcdebug: Command, script: Script) -> None:
    done = tcdebug("bisect", "--json", script(HEALTHY))
    assert (done.status, done.json["status"]) == (4, "no_failure")


EXPORTED = """
class Counting(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls

eager, run = Counting(), torch.export.export(Counting(), (torch.zeros(2),)).module()
for _ in range(2):
    torch.testing.assert_close(run(torch.zeros(2)), eager(torch.zeros(2)))
"""

PACKAGED = """
class Sums(torch.nn.Module):
    def forward(self, x):
        return (x.sin() + 1).sum(-1)

program = torch.export.export(Sums(), (torch.zeros(2, 3),))
package = torch._inductor.aoti_compile_and_package(program)
x = torch.randn(2, 3)
torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), Sums()(x))
"""

NOT_AHEAD = """
from torch._inductor import compile_fx
def broken(*args, **kwargs):
    raise RuntimeError("planted")
compile_fx.compile_fx_aot = broken
"""


def test_the_layer_of_an_export_that_burns_in_a_value_is_export(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(EXPORTED))
    assert (done.status, done.json["layer"]) == (0, "layer.export")
    assert done.json["faults"][0]["passes"] == "python repro.py --off=layer.export"


@pytest.mark.slow
def test_aotinductor_is_at_fault_where_inductor_alone_is_right(
    tcdebug: Command, python: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(NOT_AHEAD + PACKAGED))
    assert (done.status, done.json["layer"]) == (0, "layer.aotinductor")
    repro = done.json["repro"]
    assert python(repro).status == 1
    assert python(repro, "--off=layer.aotinductor").status == 0


@pytest.mark.slow
def test_a_healthy_package_does_not_fail(tcdebug: Command, script: Script) -> None:
    """It also returns random numbers, which are not those of eager."""
    text = PACKAGED.replace(".sum(-1)\n", ".sum(-1), torch.rand(3)\n").replace("(x)", "(x)[0]")
    assert tcdebug("bisect", "--json", script(text)).status == 4


COUNTED = """
import torch

made = []

class Registry(type):
    def __call__(cls, *args):
        made.append(cls.__name__)
        return super().__call__(*args)

class Scale(metaclass=Registry):
    def __init__(self, factor):
        self.factor = factor

print(torch.compile(lambda x: x * Scale(3).factor)(torch.ones(2)))
print("made", len(made))
"""


@pytest.mark.slow
def test_a_script_that_only_prints_a_wrong_line_leads_to_the_layer_and_the_statement(
    tcdebug: Command, python: Command, script: Script
) -> None:
    report = tcdebug("bisect", "--json", script(COUNTED)).json
    (fault,) = report["faults"]
    assert (report["status"], report["layer"]) == ("confirmed", "layer.dynamo")
    assert report["failure"]["message"] == "it does not print `made 1` as it does in eager"
    assert [line.split("script.py:")[1] for line in fault["lines"]] == ["16: Scale(3)"]
    assert (
        report["notes"][0]
        == "it prints `made 1` in eager, and `made 0` compiled, although it ends in the same way"
    )
    small = report["script"]["path"]
    assert python(small).stdout.strip() == "made 0"


PRINTS_WHAT_IS_COMPILED = """
import torch
import torch._dynamo.utils as utils

linear = torch.nn.Linear(4, 4)
compiled = torch.compile(linear, backend="eager")
compiled(torch.ones(2, 4))
print(type(compiled).__name__, list(compiled.state_dict())[0])
print("graphs", utils.counters["stats"]["unique_graphs"])
print("compiling", torch.compiler.is_compiling())
"""


@pytest.mark.slow
def test_what_only_a_compiled_program_prints_is_no_fault(tcdebug: Command, script: Script) -> None:
    report = tcdebug("bisect", "--json", *AS_IT_IS, script(PRINTS_WHAT_IS_COMPILED)).json
    assert (report["status"], report["culprits"]) == ("no_failure", [])
    assert report["notes"][0].startswith("it prints `graphs ")


DRAWS = """
torch.manual_seed(0)
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)))
print("loss", model(torch.randn(4, 8)).pow(2).mean().item())
print("sum", torch.compile(lambda x: x + torch.rand_like(x))(torch.ones(4)).sum().item())
"""


@pytest.mark.slow
def test_other_random_numbers_than_those_of_eager_are_no_fault(
    tcdebug: Command, script: Script
) -> None:
    report = tcdebug("bisect", "--json", *AS_IT_IS, script(DRAWS)).json
    assert (report["status"], report["culprits"]) == ("no_failure", [])
    assert report["notes"][0].startswith("it prints `loss ")


CACHED_WRONGLY = """
import torch
import torch._functorch.config
import torch._inductor.codecache as codecache

torch._functorch.config.enable_autograd_cache = False
right = codecache.compiled_fx_graph_hash
codecache.compiled_fx_graph_hash = lambda *args: ("f" + "a" * 51, right(*args)[1])
x = torch.ones(8)
for factor in (2, 3):
    torch._dynamo.reset()
    print("by", factor, "gives", torch.compile(lambda x: x * factor, dynamic=False)(x)[0].item())
"""


@pytest.mark.slow
def test_a_wrong_cache_entry_that_only_a_printed_line_shows_is_found(
    tcdebug: Command, script: Script
) -> None:
    wanted = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}  # the tests switch it off
    report = tcdebug("bisect", "--json", *AS_IT_IS, script(CACHED_WRONGLY), **wanted).json
    assert (report["status"], report["layer"]) == ("confirmed", "layer.cache.fx_graph")
    assert report["failure"]["message"] == "it does not print `by 3 gives 3.0` as it does in eager"


SCALED = """
import torch

def scaled(x):
    return x * (2.0 if torch.compiler.is_compiling() else 2.5)
"""
COMPARES_SCALED = """
import torch
{}
x = torch.ones(3)
assert torch.equal(torch.compile(scaled, backend="eager")(x), scaled(x)), "the scales differ"
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["script", "library"])
def test_code_of_a_program_for_being_compiled_is_its_own(
    tcdebug: Command, script: Script, tmp_path: Path, where: str
) -> None:
    (tmp_path / "scales.py").write_text(SCALED)
    source = SCALED if where == "script" else "from scales import scaled"
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(COMPARES_SCALED.format(source)))
    report = done.json
    assert (done.status, report["status"], report["culprits"]) == (1, "unconfirmed", [])
    own = "the code for that case is at fault, not torch"
    assert any(note.endswith(own) for note in report["notes"]), report["notes"]
    asks = "in scaled: return x * (2.0 if torch.compiler.is_compiling() else 2.5)"
    assert any(note.endswith(asks) for note in report["notes"]), report["notes"]


MEASURES = """
import time
import torch

def seconds(f, x):
    begin = time.perf_counter()
    f(x)
    return time.perf_counter() - begin

tiny, x = lambda x: x + 1, torch.ones(3)
assert seconds(torch.compile(tiny, backend="eager"), x) < 0.01, "compiled code is slow"
"""


@pytest.mark.slow
def test_no_layer_is_blamed_for_a_script_that_measures_its_compile(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(MEASURES))
    report = done.json
    assert (done.status, report["status"], report["culprits"]) == (1, "unconfirmed", [])
    own = "it measures times that include compiling"
    assert any(note.endswith(own) for note in report["notes"]), report["notes"]


HOOKS_DROPPED = """
from torch._dynamo import compiled_autograd

compiled_autograd.AutogradCompilerInstance.tensor_pre_hook = lambda self, inputs, *rest: inputs
x = torch.ones(3, requires_grad=True)
x.register_hook(lambda gradient: gradient * 5)
with compiled_autograd._enable(torch.compile()):
    (x * 2).sum().backward()
assert x.grad.tolist() == [10.0] * 3, x.grad
"""


@pytest.mark.slow
def test_compiled_autograd_is_a_layer(tcdebug: Command, python: Command, script: Script) -> None:
    done = tcdebug("bisect", "--json", *AS_IT_IS, script(HOOKS_DROPPED))
    report = done.json
    layer = "layer.dynamo.compiled_autograd"
    assert (done.status, report["status"], report["layer"]) == (0, "confirmed", layer), done.stderr
    assert report["faults"][0]["passes"] == f"python repro.py --off={layer}"
    assert python(report["repro"], f"--off={layer}").status == 0
