"""The page as text: self-contained, and with everything escaped."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tcdebug.commands import report
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    StageDiff,
)
from tcdebug.reading.run_dir import Run
from tcdebug.report.data import Texts, seen, view
from tcdebug.report.faults import faults
from tcdebug.report.page import packed, render, unpacked


def test_the_page_asks_for_nothing_and_its_policy_forbids_it(compiled: Run) -> None:
    page = render([compiled])
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r'(?:src|href)="', page)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_text_of_a_program_is_never_executed(compiled: Run) -> None:
    page = render([compiled])
    assert page.count("<script>") == 1
    assert "&lt;/script&gt;&lt;script&gt;" in page


def test_a_step_has_the_texts_before_and_after_it(compiled: Run) -> None:
    texts = Texts()
    (graph,) = view(seen(compiled)[0], texts).graphs
    assert [(s.name, s.depth, s.changed) for s in graph.steps] == [
        ("passes", 0, False),
        ("passes.algebraic", 1, True),
        ("passes.dead_code", 1, False),
        ("lower", 0, True),
    ]
    algebraic, lower = graph.steps[1], graph.steps[3]
    assert "x * 1" in texts.all[algebraic.before]
    assert "x * 1" not in texts.all[algebraic.after]
    assert lower.before == -1
    assert len(texts.all) == 4


def test_a_kernel_has_its_own_code_its_comments_and_its_lines(compiled: Run) -> None:
    texts = Texts()
    (kernel,) = view(seen(compiled)[0], texts).kernels
    assert texts.all[kernel["text"]].splitlines() == [
        "// mul: aten.mul.Tensor", 'extern "C" int cpp_mul_0(float* x) { return 0; }',
    ]  # fmt: skip
    assert kernel["origins"] == [["mul", "mul", "aten.mul.Tensor", "me/model.py:3"]]


def test_a_run_that_searched_has_its_candidates_and_not_their_compiles(searched: Run) -> None:
    shown = view(seen(searched)[0], Texts())
    assert [(s["number"], s["outcome"]) for s in shown.history] == [(1, "wrong"), (2, "ok")]
    assert shown.graphs == []


def test_data_comes_out_as_it_went_in() -> None:
    data = {"texts": ["ä", "x" * 10_000], "runs": []}
    assert unpacked(packed(data)) == data
    assert len(packed(data)) < 300


def test_the_command_writes_one_file_or_says_why_not(
    compiled: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.html"
    assert report.run(run_names=[str(compiled.path)], output=target) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert report.run(run_names=[str(compiled.path)], output=tmp_path / "no" / "page.html") == 2
    assert report.run(run_names=["no such run"], output=target) == 2


@pytest.fixture
def bisected(searched: Run) -> Run:
    """The run of a search with its report, its short repro and the diff of a stage."""
    (searched.path / "short.py").write_text("import torch\n\nf = torch.sin  # <short>\n")
    culprit = Culprit("lower.aten.sin.default", "sin", "0a1b", 3)
    stages = StageDiff("lower (forward)", "passes (forward)", lines=[" same", "-    x", "+    y"])
    failure = ReportedFailure("wrong", "forward | wrong value", "forward", "output 0: 3 of 3")
    fault = ReportedFault(
        failure, [culprit], confirmed=True, repro=str(searched.path / "repro.py"), nodes=1,
        short=str(searched.path / "short.py"), fails="python repro.py", stages=stages,
    )  # fmt: skip
    found = Report("confirmed", failure, culprits=[culprit], faults=[fault], confirmed=True)
    (searched.path / "report.json").write_bytes(msgspec.json.encode(found))
    return searched


def test_a_search_opens_on_the_failure_the_culprit_the_diff_and_the_repro(bisected: Run) -> None:
    page = render([bisected])
    overview = page[page.index('class="overview"') :]
    order = [
        "wrong in forward", "output 0: 3 of 3", "<b>lower.aten.sin.default</b> at sin",
        '<span class="gone">-    x</span>', '<span class="added">+    y</span>',
        "f = torch.sin  # &lt;short&gt;", "Graph breaks",
    ]  # fmt: skip
    places = [overview.index(text) for text in order]
    assert places == sorted(places)
    assert "of which compiling" not in overview
    assert "0 kernels" not in overview


def test_without_a_short_form_the_graph_of_the_repro_is_shown(bisected: Run) -> None:
    (bisected.path / "short.py").unlink()
    assert faults(report_of(bisected))[0].code == ""
    graph = "class Graph(torch.nn.Module):\n    pass\n\ndef inputs():\n    return []\n"
    text = f"import torch\n\n{graph}\n\ndef main():\n    return [1]\n"
    (bisected.path / "repro.py").write_text(text)
    assert faults(report_of(bisected))[0].code == graph


def report_of(run: Run) -> Report:
    return msgspec.json.decode((run.path / "report.json").read_bytes(), type=Report)


def test_a_run_that_compiled_says_what_it_cost(compiled: Run) -> None:
    assert "of which compiling" in render([compiled])
