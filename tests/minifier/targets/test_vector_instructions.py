"""Vector instructions that worked are not tried again, and others are."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch._inductor import config, cpu_vec_isa

from tcdebug.minifier.targets.inductor import vector_instructions

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="torch tries none here")
KINDS: Any = cpu_vec_isa.VecISA


def forget() -> None:
    """Let this process determine the instructions anew."""
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    KINDS._VecISA__bool__impl.cache_clear()
    for isa in cpu_vec_isa.supported_vec_isa_list:
        getattr(type(isa).__bool__, "cache_clear", lambda: None)()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The instructions that are tried, on a CPU of which tcdebug knows nothing. AVX2 may fail."""
    trials: list[str] = []

    def check_build(isa: Any, code: str) -> bool:
        trials.append(str(isa))
        return str(isa) != "avx2" or not (tmp_path / "broken").exists()

    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(KINDS, "check_build", check_build)
    forget()
    yield trials
    forget()


def test_instructions_that_all_worked_are_not_tried_by_the_next_process(tried: list[str]) -> None:
    vector_instructions.pick()
    assert tried
    first = cpu_vec_isa.valid_vec_isa_list()
    tried.clear()
    forget()
    vector_instructions.pick()
    assert cpu_vec_isa.valid_vec_isa_list() == first
    assert not tried


def test_instructions_of_which_some_failed_are_tried_again(
    tried: list[str], tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    for _ in range(2):
        tried.clear()
        forget()
        vector_instructions.pick()
        assert "avx2" in tried
        assert "avx2" not in map(str, cpu_vec_isa.valid_vec_isa_list())
    assert not vector_instructions.all_known_to_work()


def test_a_script_that_says_that_they_fail_is_believed(tried: list[str]) -> None:
    vector_instructions.pick()
    forget()
    with config.patch({vector_instructions.SETTING: False}):
        vector_instructions.pick()
    assert cpu_vec_isa.valid_vec_isa_list() == []


def test_nothing_is_tried_before_it_is_needed(tried: list[str]) -> None:
    vector_instructions.pick_if_known()
    assert not tried
    vector_instructions.pick()
    assert tried


def test_another_start_of_the_machine_is_another_machine(
    tried: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector_instructions.pick()
    assert vector_instructions.all_known_to_work()
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(vector_instructions, "BOOT", tmp_path / "boot")
    assert not vector_instructions.all_known_to_work()
