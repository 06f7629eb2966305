"""The two forms of a repro script: with the judge imported from tcdebug, and with it inside."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured
from repro_scripts import CRASH, EXCEPTION, PLANT

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging import own_draws, replay
from tcdebug.minifier.judging.compare import TOLERANCE
from tcdebug.minifier.repros.as_test import write_standalone
from tcdebug.minifier.repros.judge import calls, comparison, graph_judge
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.standalone import judges_graph, standalone
from tcdebug.minifier.repros.verify import SECONDS
from tcdebug.minifier.targets.ladder import BELOW_AOTINDUCTOR

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 3 of 3 wrong")
SLOW = Outcome(Kind.SLOW, "forward", "forward | slow")
STRIDES = Outcome(Kind.WRONG, "forward", "forward | wrong strides")
NONFINITE = Outcome(Kind.WRONG, "forward", "forward | wrong nonfinite", drew=True)
WITHOUT_TCDEBUG = """
import os, runpy, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # it would import tcdebug
for name in ["tcdebug", *sys.modules]:
    if name.partition(".")[0] == "tcdebug":
        sys.modules[name] = None
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def ended(path: Path, *arguments: str) -> tuple[int, str]:
    """Return exit status and output of a script in an interpreter without tcdebug."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TCDEBUG, path.name, *arguments],
        cwd=path.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr.partition("Traceback")[0]


def planted(folder: Path, found: Outcome, body: str, **settings: Any) -> Path:
    """Write a repro of tanh, for a backend with this body, with its inputs in a file."""
    case = captured(lambda x: x.tanh() * 2, torch.randn(80))
    settings["draws_as_eager"] = not found.drew
    content = Repro(found, {"backend": "planted"}, setup=PLANT.format(body=body), **settings)
    assert write(case, content, folder / "repro.py") == "stored"
    return folder / "repro.py"


@pytest.mark.parametrize(
    ("found", "body", "status"),
    [
        (WRONG, "return lambda *values: [v + 1 for v in module(*values)]", 1),
        (WRONG, "return lambda *values: [v[1:] for v in module(*values)]", 125),
        (EXCEPTION, "raise KeyError('tanh')", 1),
        (CRASH, "import ctypes; return lambda *v: ctypes.string_at(0)", 1),
        (STRIDES, "return module.forward", 0),
        (NONFINITE, "return lambda *v: [module(*v)[0] / 0]", 1),
        (NONFINITE, "return lambda *v: [module(*v)[0] + 1]", 0),
        (SLOW, "return lambda *v: [time.sleep(0.01), module(*v)][1]", 1),
    ],
    ids=["wrong", "other", "exception", "crash", "strides", "infinite", "finite", "slow"],
)
@pytest.mark.usefixtures("warm")
def test_a_script_ends_alike_with_the_judge_of_tcdebug_and_with_its_own(
    found: Outcome, body: str, status: int, tmp_path: Path
) -> None:
    path = planted(tmp_path, found, f"import time; {body}")
    done = subprocess.run(
        [sys.executable, path.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    converted = write_standalone(path, tmp_path)
    alone, output = ended(converted)
    assert alone == status, output
    said, with_own = done.stdout.splitlines(), output.splitlines()
    assert said[-1] == with_own[-1]
    with_own = [line.replace(converted.name, path.name) for line in with_own]
    if found is not SLOW:  # the times differ
        assert said == with_own


def test_a_script_without_its_judge_is_undecided_and_says_what_to_do(tmp_path: Path) -> None:
    status, output = ended(planted(tmp_path, WRONG, "return module.forward"))
    assert status == 125
    assert "undecided: " in output and "install it, or convert" in output
    assert "tcdebug repro --standalone repro.py" in output


def test_a_torch_that_cannot_be_imported_is_undecided(tmp_path: Path) -> None:
    path = planted(tmp_path, WRONG, "return module.forward")
    (tmp_path / "torch.py").write_text("raise RuntimeError('not built')")
    assert ended(path) == (125, "undecided: not built\n")


def test_the_default_form_is_short(tmp_path: Path) -> None:
    case = captured(torch.tanh, torch.ones(3))
    content = Repro(WRONG, {"backend": "inductor"}, ("lower.aten.tanh.default",))
    write(case, content, tmp_path / "repro.py")
    text = (tmp_path / "repro.py").read_text()
    assert len(text.splitlines()) < 60
    assert text.index("class Graph") < text.index("from tcdebug.")


def test_converting_changes_nothing_else_and_is_the_same_as_writing(tmp_path: Path) -> None:
    case = captured(torch.tanh, torch.ones(3))
    settings: dict[str, Any] = {"call": {"backend": "eager"}, "runs": 3}
    write(case, Repro(WRONG, **settings), tmp_path / "repro.py")
    short = (tmp_path / "repro.py").read_text()
    write(case, Repro(WRONG, **settings, standalone=True), tmp_path / "repro.py")
    text = (tmp_path / "repro.py").read_text()
    assert standalone(short) == text == standalone(text)
    assert judges_graph(short) and judges_graph(text) and not judges_graph("import torch\n")
    assert "runs=3" in text and "tcdebug.minifier.repros" not in text
    assert {n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef)} == {
        "Graph", "ChildReport", "GraphJudge", "_DtypesWidened",
    }  # fmt: skip


OLDER = """
import os, sys, torch
EXPECTED = {'kind': 'wrong', 'what': 'forward | wrong value'}
CALL = {'backend': 'eager'}

class Graph(torch.nn.Module):
    def forward(self, x):
        return (x.tanh(),)

def inputs():
    return [torch.ones(3)]

def prepare():
    torch.set_grad_enabled(False)

def set_up(then):
    then()

from tcdebug.minifier.repros.judge.graph_judge import judge
from tcdebug.minifier.repros.judge.layout import layout
from tcdebug.minifier.repros.judge.endless import watch
os._exit(judge(
    Graph, inputs, EXPECTED, CALL, prepare=prepare, set_up=set_up, seconds=60.0, runs=2, calls=2,
    dynamic=[(0, 0)], off=[], units=['lower'], added={}, on_device=False, widens=True,
    longer_than=0.0, layout=layout, watch=watch, own_draws=None, **dict(MORE)))
"""
"""A script of tcdebug 0.1. Later versions judge it too."""


@pytest.mark.parametrize(("more", "status"), [("", 0), ("not_known_yet=1", 125)])
@pytest.mark.usefixtures("warm")
def test_scripts_of_other_versions_are_judged_or_undecided(
    more: str, status: int, tmp_path: Path
) -> None:
    path = tmp_path / "repro.py"
    path.write_text(OLDER.replace("MORE", more))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr


def test_the_judge_has_the_constants_of_the_minifier() -> None:
    assert (calls.SEED, *calls.FURTHER_SEEDS) == (replay.SEED, *own_draws.SEEDS[1:])
    assert graph_judge.LAYERS == BELOW_AOTINDUCTOR
    assert list(graph_judge.LAYERS) == list(BELOW_AOTINDUCTOR)
    assert graph_judge.GraphJudge.seconds == SECONDS
    assert comparison.TOLERANCES.items() <= TOLERANCE.items()
