"""A run in a notebook: its report, and the changes by a pass."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
import torch
from browser import MISSING, Browser, driver

import tcdebug
from tcdebug.api.notebook import Diff, Recorded
from tcdebug.compiler.events import run_folder
from tcdebug.reading.graphs import GraphChange


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax((x * 1).sin(), -1)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A block that compiled something."""
    torch._dynamo.reset()
    before = os.environ.get("TCDEBUG_RUN_DIR")
    folder = tmp_path_factory.mktemp("run")
    run_folder.write_info(folder, "watch")
    with tcdebug.watch(folder=folder) as found:
        torch.compile(f, backend="tcdebug", options={"log": True})(torch.ones(3, 4))
    assert os.environ.get("TCDEBUG_RUN_DIR") == before
    return found


def test_a_watched_block_is_rendered_as_a_report_that_may_only_run_its_own_script(
    watched: Recorded, tmp_path: Path
) -> None:
    drawn = watched._repr_html_()
    assert drawn.startswith('<iframe sandbox="allow-scripts" ')
    page = html.unescape(re.search(r'srcdoc="(.*)"></iframe>', drawn, re.DOTALL)[1])  # type: ignore[index] # asserted by the subscript
    assert page.startswith("<!doctype html>")
    assert repr(watched) == f"<run {watched.run.path}: tcdebug report {watched.run.path.name}>"
    if MISSING:
        pytest.skip("chromium and chromedriver are not installed")
    (tmp_path / "cell.html").write_text(f"<body data-ready=1>{drawn}")
    with driver() as port:
        browser = Browser(port, 1200)
        browser.open(f"file://{tmp_path}/cell.html")
        browser.enter("iframe")
        browser.run("document.querySelector('[data-tab=fusion]').click()")
        assert "6 loops, moving 528 B, became 1 kernel" in browser.run(
            "return document.querySelector('#fusion p').textContent"
        )
        browser.close()


def test_a_change_is_shown_side_by_side_and_its_text_is_escaped(
    watched: Recorded,
) -> None:
    change = watched.diff("passes.algebraic")
    assert [c.title for c in change.changes] == ["passes.algebraic on 0/0 inference"]
    drawn = change._repr_html_()
    assert drawn.count("<table") == 1
    assert "torch.ops.aten.mul.Tensor(" in drawn
    assert "-    mul" in str(change)
    hostile = GraphChange("<b>", "a\n<script>", "a\n<i>")
    assert "<script>" not in Diff([hostile])._repr_html_()
    assert watched.diff("nothing.of.the.kind")._repr_html_() == "<i>no graph changed</i>"
