"""Settings of torch that differ from its defaults: found, described, set back, written down."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch._dynamo.config
import torch._inductor.config
from torch._inductor import config
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.settings import assignments, changed, described, set_back

INDUCTOR = "torch._inductor.config"

IN_A_SHELL = """
import torch._dynamo, torch._inductor.config as config
from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.settings import assignments, changed, described, set_back
name = "torch._inductor.config"
print(changed(name))
print([described(name, setting) for setting in changed(name)])
with set_back(name, changed(name), EventLog(None)):
    print(config.nan_asserts, config.freezing, config.delay_realize_cheap_outputs)
print(config.nan_asserts, config.freezing, config.delay_realize_cheap_outputs)
print([described(name, setting) for setting in changed(name)])
print(*assignments(), sep="; ")
"""


@needs_torch("2.12", "no variable forces a setting")
def test_a_value_from_an_environment_variable_is_not_a_default() -> None:
    given = {
        "TORCHINDUCTOR_NAN_ASSERTS": "1",
        "TORCHINDUCTOR_FREEZING": "1",
        "TORCHINDUCTOR_DELAY_REALIZE_CHEAP_OUTPUTS": "0",  # a program cannot override this one
        "TORCHINDUCTOR_CACHE_DIR": "/nowhere",
        "CXX": "clang++",
        "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1",
    }
    plain = {k: v for k, v in os.environ.items() if k != "CI"}
    from_environment = (
        "['True, from the environment', 'False, from the environment', "
        "'True, from the environment', \"(None, 'clang++'), from the environment\"]"
    )
    done = subprocess.run(
        [sys.executable, "-c", IN_A_SHELL],
        env={**plain, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "{'nan_asserts': False, 'delay_realize_cheap_outputs': True, 'freezing': False, "
        "'cpp.cxx': (None, 'g++')}",
        from_environment,
        "False False True",
        "True True False",
        from_environment,
        "from torch._dynamo import config; config.capture_scalar_outputs = True; "
        "from torch._inductor import config; config.nan_asserts = True; "
        "config.delay_realize_cheap_outputs = False; config.freezing = True; "
        "config.cpp.cxx = (None, 'clang++')",
    ]


def test_an_assigned_value_is_recorded_if_possible() -> None:
    relu_bug = "cpp.inject_relu_bug_TESTING_ONLY"
    patches = {relu_bug: "accuracy", "post_grad_custom_post_pass": print, "trace.enabled": True}
    with config.patch(patches), torch._dynamo.config.patch(suppress_errors=True):
        assert changed(INDUCTOR) == {relu_bug: None, "post_grad_custom_post_pass": None}
        assert described(INDUCTOR, relu_bug) == "'accuracy'"
        assert assignments()[-2:] == (
            "from torch._inductor import config", f"config.{relu_bug} = 'accuracy'",
        )  # fmt: skip
        assert "suppress_errors" not in "".join(assignments())
        assert Ambient.current().settings == assignments()
        assert Ambient.current(()).settings == ()


def test_the_lines_set_what_was_set() -> None:
    with torch._dynamo.config.patch(specialize_float=True), config.patch({"cpp.simdlen": 8}):
        text = Ambient.current().text()
    with torch._dynamo.config.patch(specialize_float=False), config.patch({"cpp.simdlen": None}):
        exec(text, {"torch": torch})  # as a repro script does
        assert torch._dynamo.config.specialize_float is True
        assert config.cpp.simdlen == 8


def test_a_setting_is_restored_after_it_was_set_back() -> None:
    with config.patch(max_autotune=True):
        with set_back(INDUCTOR, {"max_autotune": False}, EventLog(None)):
            assert config.max_autotune is False
        assert config.max_autotune is True


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TORCHINDUCTOR_MAX_AUTOTUNE", True),
        ("ATEN_CPU_CAPABILITY", True),
        ("OMP_NUM_THREADS", True),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("TORCHINDUCTOR_COMPILE_THREADS", False),
        ("TORCH_LOGS", False),
        ("TORCHELASTIC_RUN_ID", False),
        ("PATH", False),
    ],
)
def test_variables_that_change_results_are_distinguished_from_those_that_set_locations(
    name: str, expected: bool
) -> None:
    assert environment.is_setting(name) is expected


def test_a_repro_is_tried_without_variables_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.given():
        monkeypatch.delenv(name)
    assert environment.variables_to_try() == ({},)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert environment.variables_to_try() == ({}, {"ATEN_CPU_CAPABILITY": "default"})
    assert "ATEN_CPU_CAPABILITY" not in environment.without_settings(os.environ)
    assert "os.environ.update({'ATEN_CPU_CAPABILITY': 'default'})" in environment.text(
        environment.given()
    )
