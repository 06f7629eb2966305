"""Units of inductor's patterns have descriptive names, and required patterns are not units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import torch
from torch._inductor.fx_passes import freezing_patterns, joint_graph, post_grad, pre_grad
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch_versions import VERSION

from tcdebug.minifier.targets.inductor.pass_names import (
    NAMELESS,
    function_name,
    outermost_function,
    pattern_name,
)

MODULES = (pre_grad, joint_graph, post_grad, freezing_patterns)


@cache
def registered() -> dict[str, list[Any]]:
    """Return every pattern that inductor registers, by the name of its unit."""
    for module in MODULES:
        module.lazy_init()
    found: dict[str, list[Any]] = {}
    for entry in entries():
        found.setdefault(pattern_name(entry), []).append(entry)
    return found


def entries() -> Iterator[Any]:
    for module in MODULES:
        for value in vars(module).values():
            for group in value.values() if isinstance(value, dict) else as_list(value):
                if isinstance(group, PatternMatcherPass):
                    for patterns in group.patterns.values():
                        yield from patterns


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of one element."""
    return value if isinstance(value, list) else [value]


def test_every_pattern_has_a_descriptive_name() -> None:
    names = set(registered())
    assert len(names) > 100
    assert not names & NAMELESS
    assert not any("<" in name or name.startswith("pattern_") for name in names)


def test_a_pattern_keeps_its_name_while_its_check_is_wrapped() -> None:
    (entry, *_) = registered()["randperm_index_pattern"]
    check = entry.extra_check

    @wraps(check)
    def wrapped(match: Any) -> Any:
        return check(match)

    assert pattern_name(replace(entry, extra_check=wrapped)) == "randperm_index_pattern"


def test_nameless_patterns_are_named_by_what_registers_or_traces_them() -> None:
    names = set(registered())
    assert {
        "register_binary_unary_fusion_lowering",  # its handler is called `fn`
        "randperm_index_pattern",  # its check is a lambda
        "matmul_fuse_pattern",
        "mm_pattern_inference" if VERSION >= "2.12" else "mm_pattern",
        "pointless_view",
    } <= names


def test_a_nameless_function_is_named_by_the_enclosing_one() -> None:
    def _(x: torch.Tensor) -> torch.Tensor:
        return x

    assert function_name(_) == ""
    assert outermost_function(_) == "test_a_nameless_function_is_named_by_the_enclosing_one"
    assert function_name(lambda: None) == ""
    assert outermost_function(None) == ""
