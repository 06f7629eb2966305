"""Options: their sources, and the errors for unknown options and bad values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.configuration.options import BadOption, Options
from tcdebug.compiler.gate.toggles import BadToggle
from tcdebug.compiler.units import units


def test_an_empty_environment_gives_the_defaults() -> None:
    options = Options.from_env({})
    assert options == Options()
    assert (options.log, options.artifacts, options.run_dir, options.compiler) == (
        True, True, None, "g++",
    )  # fmt: skip


def test_every_variable_is_read() -> None:
    options = Options.from_env(
        {
            "TCDEBUG_OFF": "fuse,lower.aten.erf.default",
            "TCDEBUG_LOG": "0",
            "TCDEBUG_ARTIFACTS": "",
            "TCDEBUG_RUN_DIR": "runs",
            "TCDEBUG_CACHE_DIR": "cache",
            "TCDEBUG_CXX": "clang++",
            "TCDEBUG_ON_ERROR": "fallback",
            "TCDEBUG_BACKGROUND": "1",
            "TCDEBUG_MEMORY_BUDGET": "0.5",
        }
    )
    assert (options.on_error, options.background, options.memory_budget) == ("fallback", True, 0.5)
    assert options.toggles.texts() == ["fuse", "lower.aten.erf.default"]
    assert (options.log, options.artifacts) == (False, False)
    assert (options.run_dir, options.cache_dir) == (Path("runs"), Path("cache"))
    assert options.compiler == "clang++"


def test_options_of_the_call_override_the_environment() -> None:
    options = Options.from_env({"TCDEBUG_CXX": "clang++", "TCDEBUG_LOG": "0"})
    assert options.updated(None, {"compiler": "g++"}).compiler == "g++"
    assert not options.updated(None, {"compiler": "g++"}).log


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"of": []}, "no option 'of'; did you mean off"),
        ({"cache": "x"}, "no option 'cache'; did you mean cache_dir"),
        ({"toggles": []}, "no option 'toggles'"),
        ({"zzz": 1}, "no option 'zzz'; the options are off, log"),
        ({"log": "yes"}, "option 'log' takes bool, not 'yes'"),
        ({"on_error": "ignore"}, "option 'on_error' must be one of raise, fallback, not 'ignore'"),
        ({"memory_budget": 2}, "option 'memory_budget' must be a number from 0 to 1, not 2"),
        ({"compiler": True}, "option 'compiler' takes str, not True"),
    ],
)
def test_an_unknown_option_suggests_similar_names(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Options().updated(None, given)


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(BadOption, match="mode 'fast' is not one of default"):
        Options().updated("fast", None)


@pytest.mark.parametrize("variable", ["TCDEBUG_MEMORY_BUDGET", "TCDEBUG_ON_ERROR"])
def test_a_bad_value_in_the_environment_is_an_error(variable: str) -> None:
    with pytest.raises(BadOption, match="not 'much'"):
        Options.from_env({variable: "much"})


def test_a_bad_toggle_in_the_environment_is_an_error() -> None:
    with pytest.raises(BadToggle, match="'fuse:x'"):
        Options.from_env({"TCDEBUG_OFF": "fuse:x"})


def test_units_have_unique_names_and_a_summary_in_pipeline_order() -> None:
    found = list(units())
    names = [unit.name for unit in found]
    assert len(names) == len(set(names))
    assert all(unit.summary for unit in found)
    families = list(dict.fromkeys(name.partition(".")[0] for name in names))
    assert families == [
        "pregrad", "decompose", "partition", "passes", "lower", "fuse", "codegen", "memory",
        "runtime",
    ]  # fmt: skip
