"""Every test run fuzzes the compiler: with a fixed seed, and with programs that once failed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tcdebug.fuzz.findings import Findings, State

CORPUS = Path(__file__).parent / "corpus"
"""Findings in the embedded compiler. `tcdebug fuzz triage --findings` marks the fixed ones."""


def test_the_embedded_compiler_is_right_on_the_programs_of_a_fixed_seed_and_on_what_was_fixed(
    tcdebug: Any, tmp_path: Path
) -> None:
    shutil.copytree(CORPUS, tmp_path / "corpus")
    done = tcdebug("fuzz", "ci", "--examples=12", "--seed=0", "--findings=corpus", "-q", "-j1")
    assert done.status == 0, done.stdout + done.stderr
    assert done.stdout.startswith("12 programs, 100.0% valid, 0 new findings")


def test_the_corpus_has_fixed_findings_of_the_embedded_compiler() -> None:
    found = list(Findings(CORPUS))
    assert {f.backend for f in found} == {"tcdebug"}
    assert any(f.state is State.FIXED for f in found)
    assert all(f.slug == path.name for f, path in zip(found, sorted(CORPUS.iterdir()), strict=True))
