"""The page in a browser: it unpacks, searches, compares, and reacts to the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import MISSING, Browser, driver

from tcdebug.reading.run_dir import Run
from tcdebug.report.page import render

pytestmark = pytest.mark.skipif(MISSING, reason="chromium and chromedriver are not installed")

ENTER, UP, DOWN = "\ue007", "\ue013", "\ue015"
"""Keys, as WebDriver names them."""
ROWS = "return [...document.querySelectorAll('.row')].map(r => r.firstChild.textContent)"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """One driver for all tests."""
    with driver() as running:
        yield running


@pytest.fixture
def page(port: int, compiled: Run, searched: Run, ranks: Run, tmp_path: Path) -> Iterator[Any]:
    """Open the page of both runs, or of the ranks: page(width, place)."""
    (tmp_path / "page.html").write_text(render([compiled, searched]))
    (tmp_path / "ranks.html").write_text(render([ranks]))
    browsers: list[Browser] = []

    def opened(width: int = 1200, place: str = "", *more: str, name: str = "page.html") -> Browser:
        browsers.append(Browser(port, width, *more))
        browsers[-1].open(f"file://{tmp_path}/{name}{place}")
        return browsers[-1]

    yield opened
    for browser in browsers:
        assert browser.errors() == []
        browser.close()


def test_stages_can_be_searched_compared_and_stepped_through(page: Any) -> None:
    browser = page()
    assert browser.run("return document.title") == "compiled · tcdebug"
    browser.press("2")
    assert browser.run(ROWS) == ["passes.algebraic", "lower"]
    browser.press("u")
    assert browser.run(ROWS) == ["passes", "passes.algebraic", "passes.dead_code", "lower"]
    browser.press("ujj")
    assert browser.run("return document.querySelector('#diff h2').textContent") == (
        "lower · 0/0 forward"
    )
    browser.press("k")
    assert browser.run("return document.querySelector('.gone').textContent") == "y = x * 1"
    assert browser.run("return document.querySelector('.added').textContent") == "y = x"
    assert browser.run("return document.querySelector('.fold').textContent") == "… 27 equal lines"
    assert "g=0%2F0+forward&s=1" in browser.run("return location.hash")
    browser.press("/pointwise")
    assert browser.run(ROWS) == ["lower"]


def test_the_address_of_a_position_can_be_shared(page: Any) -> None:
    browser = page(1200, "#r=0&v=stages&g=0%2F0+forward&s=1")
    assert browser.run("return document.querySelector('.gone').textContent") == "y = x * 1"
    assert browser.run("mark('same_29'); return CSS.highlights.get('name').size") == 2


def test_kernels_timeline_and_search_are_drawn(page: Any) -> None:
    browser = page()
    browser.press("4")
    assert "4.1 KB" in browser.run("return document.querySelector('#kernels summary').textContent")
    browser.press("5")
    assert browser.run("return document.querySelectorAll('#timeline rect').length") == 5
    browser.run("document.querySelector('#run').value = 1;"
                "document.querySelector('#run').dispatchEvent(new Event('change'))")  # fmt: skip
    browser.press("6")
    assert browser.run("return document.querySelectorAll('#search rect').length") == 2


def test_loops_and_kernels_are_drawn_with_their_reads_and_can_be_navigated(page: Any) -> None:
    browser = page(1200, "#v=fusion", name="ranks.html")
    told = "return document.querySelector('#fusion p').textContent"
    assert "2 loops, moving 6.4 KB, became 1 kernel, moving 2.3 KB; 1 call of ATen" in (
        browser.run(told)
    )
    drawn = "return [...document.querySelectorAll('#fusion .box')].map(b => b.dataset.name)"
    assert browser.run(drawn) == ["x", "double", "total", "sorted", "x", "cpp_total_0", "sorted"]
    chosen = "return [...document.querySelectorAll('.box.chosen')].map(b => b.dataset.name)"
    browser.run("document.querySelector('[data-name=double]').focus()")
    browser.press(ENTER)
    assert browser.run(chosen) == ["double", "total", "cpp_total_0"]
    browser.press(DOWN + DOWN)
    assert browser.run(chosen) == ["sorted", "sorted"]
    browser.press(UP)
    browser.run("document.querySelector('#about button').click()")
    assert browser.run("return document.querySelector('#kernels details').open")


def test_ranks_are_shown_side_by_side_with_the_stage_where_they_diverge(page: Any) -> None:
    browser = page(1200, "", name="ranks.html")
    assert browser.run("return document.querySelectorAll('#run option').length") == 2
    browser.press("7")
    assert browser.run("return document.querySelectorAll('#compare tbody')[0].rows.length") == 2
    browser.run("document.querySelector('[data-pair]').click()")
    assert browser.run("return document.querySelector('#pair h2').textContent") == (
        "0/0 forward: inline"
    )
    assert "'prod'" in browser.run("return document.querySelector('#pair .added').textContent")


def test_the_page_fits_a_phone_in_dark_mode(page: Any) -> None:
    browser = page(500, "#v=fusion", "--force-dark-mode", name="ranks.html")
    wide = "return document.documentElement.scrollWidth - innerWidth"
    assert [(key, browser.press(key), browser.run(wide) > 0)[::2] for key in "1234567"] == [
        (key, False) for key in "1234567"
    ]
    colour = "return getComputedStyle(document.body).backgroundColor"
    assert browser.run(colour) == "rgb(20, 23, 27)"
