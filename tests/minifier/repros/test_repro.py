"""The text of a repro script: what it says, expects and sets."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch
from captured import captured
from repro_scripts import EAGER, WRONG, imported, linear, namespace_of, seeded, written

from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.settings import assignments
from tcdebug.minifier.repros.repro import Repro, expected, write_passing
from tcdebug.minifier.repros.verify import (
    verify,
)


def test_a_standalone_script_needs_only_torch_and_reveals_nothing_about_this_machine(
    tmp_path: Path,
) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    content = Repro(WRONG, EAGER, ambient=Ambient(deterministic=True), standalone=True)
    text, kind = written(seeded(case), tmp_path / "repro.py", content)
    assert kind == "seeded"
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    for place in (str(tmp_path), str(Path.home()), str(Path(__file__).parents[3]), sys.prefix):
        assert place not in text
    assert [p.name for p in tmp_path.iterdir()] == ["repro.py"]


def test_a_script_says_what_it_is_about(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    call = {"backend": "tcdebug", "options": {"off": ["passes.cse"]}}
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, call, ("fuse.inline", "memory")))
    doc = ast.get_docstring(ast.parse(text))
    assert doc is not None
    lines = doc.splitlines()
    assert lines[0] == "A wrong result of torch.compile: forward | wrong value"
    assert "failure   wrong, forward: output 0: 1 of 2 out of tolerance" in lines
    assert "culprit   fuse.inline, memory" in lines
    assert "graph     3 nodes, 2 inputs" in lines
    assert lines[-1] == ("It passes with the culprit switched off: --off=fuse.inline --off=memory")
    assert namespace_of(tmp_path / "repro.py")["CALL"] == call


def test_quotes_and_backslashes_in_a_message_do_no_harm(tmp_path: Path) -> None:
    outcome = Outcome(Kind.EXCEPTION, "compile", "compile | E", 'E: """ \\N{x} $name\n\\')
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(outcome, EAGER))
    ast.parse(text)
    assert namespace_of(tmp_path / "repro.py")["EXPECTED"] == {
        "kind": "exception", "class": "E", "what": '<name>" \\N{x} $name',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "expectation"),
    [
        (WRONG, {"kind": "wrong", "what": "forward | wrong value"}),
        (
            Outcome(Kind.EXCEPTION, "compile", "compile | lower | KeyError", "KeyError: 'tanh'"),
            {"kind": "exception", "class": "KeyError", "what": "<name>"},
        ),
        (
            Outcome(
                Kind.EXCEPTION,
                "compile",
                "compile | KeyError | cases/outcome.py:normalised | <name>",
                "KeyError: 'tanh'",
            ),
            {
                "kind": "exception",
                "class": "KeyError",
                "what": "<name>",
                "frame": "cases/outcome.py:normalised",
            },
        ),
        (
            Outcome(Kind.EXCEPTION, "compile", "compile | E | user/model.py:f | # a", "E: 7 a"),
            {"kind": "exception", "class": "E", "what": "# a"},
        ),
        (  # a script that was started as `python outcome.py`
            Outcome(Kind.EXCEPTION, "compile", "compile | E | outcome.py:f | # a", "E: 7 a"),
            {"kind": "exception", "class": "E", "what": "# a"},
        ),
        (Outcome(Kind.CRASH, "forward", "forward | SIGSEGV"), {"kind": "crash"}),
        (Outcome(Kind.HANG, "compile", "compile | hang"), {"kind": "hang"}),
        (Outcome(Kind.KILLED, "compile", "compile | out of memory"), {"kind": "killed"}),
        (Outcome(Kind.CRASH, "forward", "forward | ended"), {"kind": ["crash", "hang"]}),
        (Outcome(Kind.OK), {"kind": "ok"}),
    ],
)
def test_what_a_script_expects(outcome: Outcome, expectation: dict[str, str]) -> None:
    assert expected(outcome) == expectation


@pytest.mark.parametrize(
    ("ambient", "line"),
    [
        (Ambient(grad=False), "torch.set_grad_enabled(False)"),
        (Ambient(inference=True), "torch.inference_mode().__enter__()"),
        (
            Ambient(autocast="torch.bfloat16"),
            'torch.autocast("cpu", dtype=torch.bfloat16).__enter__()',
        ),
        (Ambient(default_dtype="torch.float64"), "torch.set_default_dtype(torch.float64)"),
        (Ambient(deterministic=True), "torch.use_deterministic_algorithms(True)"),
    ],
)
def test_a_script_sets_the_state_of_torch(ambient: Ambient, line: str, tmp_path: Path) -> None:
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, EAGER, ambient=ambient))
    here = next(n for n in ast.parse(text).body if getattr(n, "name", "") == "prepare")
    assert line in (ast.get_source_segment(text, here) or "").replace("    ", "")
    assert Ambient().text() == ""


def test_the_current_state_of_torch_is_recorded() -> None:
    changed = assignments()  # even CI=1 in the environment changes one
    assert Ambient.current() == Ambient(settings=changed)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Ambient(grad=False, autocast="torch.bfloat16", settings=changed)
        assert Ambient.current() == inside


def test_inductor_runs_without_its_caches(tmp_path: Path) -> None:
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, {"backend": "inductor"}))
    assert 'os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = ' in text
    assert "INDUCTOR" not in written(case, tmp_path / "other.py")[0]


def test_dynamic_dimensions_are_marked(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4), dynamic=True)
    text, _ = written(case, tmp_path / "repro.py")
    assert "        dynamic=[(0, 0)" in text


@pytest.mark.usefixtures("warm")
def test_the_nearest_passing_case_is_written_beside_with_its_differences(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    passing = captured(lambda x, w: torch.sigmoid(x @ w).sum(-1), *case.values())
    content = Repro(WRONG, EAGER, ("fuse.inline",), passing=passing)
    text, _ = written(seeded(case), tmp_path / "repro.py", content)
    doc = ast.get_docstring(ast.parse(text))
    assert doc is not None
    start = doc.index("The nearest graph that passes")
    assert doc[start:].splitlines()[:5] == [
        "The nearest graph that passes differs in:",
        "    - relu = torch.relu(matmul)",
        "    - sum_1 = relu.sum(-1)",
        "    + sigmoid = torch.sigmoid(matmul)",
        "    + sum_1 = sigmoid.sum(-1)",
    ]
    assert write_passing(seeded(passing), content, tmp_path / "repro_passes.py") == "seeded"
    other = (tmp_path / "repro_passes.py").read_text()
    assert other.startswith('"""A graph that torch.compile gets right\n')
    assert "It exits with 0 if it passes, with 1 if it fails" in other
    assert "culprit" not in other
    done = verify(tmp_path / "repro_passes.py")
    assert done.output == "found    {'kind': 'ok'}\nexpected {'kind': 'ok'}\nit does not fail\n"


def test_only_the_beginning_of_a_large_difference_is_shown(tmp_path: Path) -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x.sin()
        return x

    case, passing = captured(torch.cos, torch.ones(2)), captured(long, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, EAGER, passing=passing))
    assert "    and 13 more lines" in text
