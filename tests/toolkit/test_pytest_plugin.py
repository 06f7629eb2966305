"""pytest --tcdebug: repro and culprit in the section of a failed test."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_scripts import WRONG_SIN_FIXTURE

Command = Callable[..., Any]

TEST = (
    WRONG_SIN_FIXTURE
    + """
f = torch.compile(torch.sin, backend="tcdebug")


def test_wrong(planted):
    x = torch.ones(3)
    torch.testing.assert_close(f(x), x.sin())


def test_of_another_kind():
    assert 1 == 2
"""
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "test_it.py").write_text(TEST)
    return "test_it.py"


def sections(text: str) -> list[str]:
    """The sections of tcdebug in what pytest printed."""
    return re.findall(r"^-+ tcdebug -+\n(.*?)(?=^[-=_]{5,})", text, re.DOTALL | re.MULTILINE)


def test_a_failed_test_gets_the_repro_of_its_graph(python: Command, file: str) -> None:
    done = python("-m", "pytest", "-q", "--tcdebug", file)  # argparse takes the file for a value
    assert "2 failed, 1 passed" in done.stdout
    wrong, other = sections(done.stdout)
    assert re.search(r"^repro +\S+graphs/1/repro.py: it fails on its own$", wrong, re.MULTILINE)
    assert other == "no compiled graph of this test failed or differed from eager\n"


def test_without_the_option_nothing_is_watched(python: Command, file: str, tmp_path: Path) -> None:
    done = python("-m", "pytest", "-q", file)
    assert sections(done.stdout) == []
    assert list((tmp_path / ".tcdebug").glob("*-watch")) == []


def test_another_value_is_a_usage_error(python: Command, file: str) -> None:
    done = python("-m", "pytest", "-q", "--tcdebug=bisekt", file)
    assert done.status == 4
    assert "--tcdebug takes run or bisect, not 'bisekt'" in done.stderr


@pytest.mark.slow
def test_a_failed_test_is_bisected_in_place(python: Command, file: str) -> None:
    done = python("-m", "pytest", "-q", f"{file}::test_wrong", "--tcdebug=bisect")
    (section,) = sections(done.stdout)
    assert "culprit  lower.aten.sin.default at sin" in section
    repros = re.findall(r"^repro +(\S+)", section, re.MULTILINE)
    assert python(repros[-1]).status == 1
