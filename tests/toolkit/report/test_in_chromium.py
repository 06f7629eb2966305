"""The page in a browser: it unpacks, searches, compares, and is driven from the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import MISSING, Browser, driver

from tcdebug.report.page import render
from tcdebug.run_dir import Run

pytestmark = pytest.mark.skipif(MISSING, reason="chromium and chromedriver are not installed")

ROWS = "return [...document.querySelectorAll('.row')].map(r => r.firstChild.textContent)"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """One driver for all tests."""
    with driver() as running:
        yield running


@pytest.fixture
def page(port: int, compiled: Run, searched: Run, tmp_path: Path) -> Iterator[Any]:
    """Open the page of both runs: page(width, place)."""
    (tmp_path / "page.html").write_text(render([compiled, searched]))
    browsers: list[Browser] = []

    def opened(width: int = 1200, place: str = "", *more: str) -> Browser:
        browsers.append(Browser(port, width, *more))
        browsers[-1].open(f"file://{tmp_path}/page.html{place}")
        return browsers[-1]

    yield opened
    for browser in browsers:
        assert browser.errors() == []
        browser.close()


def test_stages_are_found_compared_and_walked_through(page: Any) -> None:
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


def test_a_place_can_be_sent_to_somebody(page: Any) -> None:
    browser = page(1200, "#r=0&v=stages&g=0%2F0+forward&s=1")
    assert browser.run("return document.querySelector('.gone').textContent") == "y = x * 1"
    assert browser.run("mark('same_29'); return CSS.highlights.get('name').size") == 2


def test_kernels_timeline_and_search_are_drawn(page: Any) -> None:
    browser = page()
    browser.press("3")
    assert "4.1 KB" in browser.run("return document.querySelector('#kernels summary').textContent")
    browser.press("4")
    assert browser.run("return document.querySelectorAll('#timeline rect').length") == 5
    browser.run("document.querySelector('#run').value = 1;"
                "document.querySelector('#run').dispatchEvent(new Event('change'))")  # fmt: skip
    browser.press("5")
    assert browser.run("return document.querySelectorAll('#search rect').length") == 2


@pytest.mark.parametrize("tab", ["overview", "stages", "kernels", "timeline", "search"])
def test_nothing_is_wider_than_a_phone_in_dark_mode(page: Any, tab: str) -> None:
    browser = page(500, f"#r=1&v={tab}", "--force-dark-mode")
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    colour = "return getComputedStyle(document.body).backgroundColor"
    assert browser.run(colour) == "rgb(20, 23, 27)"
