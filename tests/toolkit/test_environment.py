"""Failures caused by an environment variable: the repro has them without the variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
Script = Callable[[str], str]

NAN = "torch.compile(lambda x: torch.log(x) + 1)(torch.tensor([1.0, -1.0]))"

OLD_MACHINE = """
import os
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
if os.environ.get("ATEN_CPU_CAPABILITY") == "default":
    REGISTRY.lowerings[torch.ops.aten.sin.default] = lambda site, x: right(site, right(site, x))
torch.compile(lambda x: torch.sin(x) + 1, backend="tcdebug")(torch.ones(3))
"""


@pytest.mark.slow
def test_a_setting_given_by_a_variable_can_be_the_culprit(
    tcdebug: Command, python: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(NAN), TORCHINDUCTOR_NAN_ASSERTS="1")
    assert done.status == 0, done.stderr
    (culprit,) = done.json["culprits"]
    assert (culprit["unit"], culprit["subject"]) == (
        "config.nan_asserts", "True, from the environment",
    )  # fmt: skip
    repro = done.json["repro"]
    assert "    from torch._inductor import config\n    config.nan_asserts = True\n" in (
        Path(repro).read_text()
    )
    assert python(repro).status == 1
    assert python(repro, "--off=config.nan_asserts").status == 0


@pytest.mark.slow
def test_a_variable_that_a_failure_needs_is_in_its_repro(
    tcdebug: Command, python: Command, script: Script
) -> None:
    name = script(OLD_MACHINE)
    done = tcdebug("bisect", "--json", "--no-minify", name, ATEN_CPU_CAPABILITY="default")
    assert done.status == 0, done.stderr
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]
    start = "the repro fails only with variables: "
    (needs,) = (note for note in done.json["notes"] if note.startswith(start))
    assert {"ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS"} <= set(needs.removeprefix(start).split(", "))
    assert python(done.json["repro"]).status == 1
