"""Patches of torch: in force during a block, always undone, and skipped if they do not fit."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, install, misfit, patched

SILENT = EventLog(None)


class Base:
    def inherited(self) -> str:
        return "inherited"


class Owner(Base):
    flag: int
    """An attribute of instances, as in a dataclass."""

    def method(self, node1: str, node2: str) -> str:
        return f"{node1} {node2}"

    @classmethod
    def of_class(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @staticmethod
    def of_none(name: str) -> str:
        return name


Owner.method.__module__ = "torch.not_really"


def function() -> str:
    return "torch"


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that stands in for a module of torch."""
    made: Any = ModuleType("torchlike")
    made.Owner, made.function, made.value = Owner, function, 1
    monkeypatch.setitem(sys.modules, "torchlike", made)
    yield made


FUNCTION = Patch("torchlike", "function", "nothing")
METHOD = Patch("torchlike:Owner", "method", "no pairs", takes=("node1", "node2"))


def marking(mark: str) -> Callable[[Any], Any]:
    """Makes a replacement that adds a mark to the result of the original."""

    def make(original: Callable[..., str]) -> Callable[..., str]:
        return lambda *args, **kwargs: f"{original(*args, **kwargs)} {mark}"

    return make


def test_functions_methods_and_values_are_replaced_only_during_the_block(module: Any) -> None:
    before = dict(vars(Owner))
    with (
        patched(FUNCTION, marking("ours"), SILENT),
        patched(METHOD, marking("ours"), SILENT),
        patched(replace(METHOD, attribute="of_class", takes=()), marking("ours"), SILENT),
        patched(replace(METHOD, attribute="of_none", takes=()), marking("ours"), SILENT),
        patched(replace(METHOD, attribute="inherited", takes=()), marking("ours"), SILENT),
        patched(replace(FUNCTION, attribute="value"), lambda one: one + 1, SILENT),
    ):
        assert module.function() == "torch ours"
        assert Owner().method("a", node2="b") == "a b ours"
        assert (Owner.of_class("a"), Owner().of_class("a")) == ("Owner a ours", "Owner a ours")
        assert (Owner.of_none("a"), Owner().of_none("a")) == ("a ours", "a ours")
        assert (Owner().inherited(), Base().inherited()) == ("inherited ours", "inherited")
        assert module.value == 2
    assert dict(vars(Owner)) == before
    assert (module.function, module.value) == (function, 1)


def test_a_patch_of_an_instance_does_not_affect_others() -> None:
    one, other = Owner(), Owner()
    one.flag = other.flag = 1
    patch = Patch("torchlike:Owner", "flag", "nothing", of_instances=True)
    with patched(patch, lambda flag: 2, SILENT, on=one):
        assert (one.flag, other.flag) == (2, 1)
    assert (one.flag, other.flag) == (1, 1)


def test_a_patch_is_undone_when_the_block_raises(module: Any) -> None:
    with pytest.raises(KeyError), patched(FUNCTION, marking("ours"), SILENT):
        raise KeyError
    assert module.function is function


def test_patches_of_one_attribute_are_undone_in_any_order(module: Any) -> None:
    first = install(FUNCTION, marking("1"), SILENT)
    second = install(FUNCTION, marking("2"), SILENT)
    third = install(FUNCTION, marking("3"), SILENT)
    assert first
    assert second
    assert third
    assert module.function() == "torch 1 2 3"
    second.undo()
    assert module.function() == "torch 1 3"
    first.undo()
    first.undo()
    assert module.function() == "torch 3"
    third.undo()
    assert module.function is function


def test_a_replacement_by_a_script_stays_and_ours_becomes_inactive(
    module: Any,
) -> None:
    with patched(FUNCTION, marking("ours"), SILENT):
        below = module.function
        module.function = lambda: below() + " theirs"
        assert module.function() == "torch ours theirs"
    assert module.function() == "torch theirs"
    with patched(FUNCTION, marking("again"), SILENT):
        assert module.function() == "torch theirs again"
    assert module.function() == "torch theirs"
    module.function = below  # as in a script that undoes its own patch
    assert module.function() == "torch"


def test_an_earlier_replacement_by_a_script_is_restored(module: Any) -> None:
    module.function = theirs = lambda: "theirs"
    with patched(FUNCTION, marking("ours"), SILENT):
        assert module.function() == "theirs ours"
    assert module.function is theirs


def test_threads_patch_one_attribute_concurrently(module: Any) -> None:
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(50):
            with patched(FUNCTION, marking("ours"), SILENT):
                module.function()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert module.function is function


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (METHOD, ""),
        (replace(METHOD, owner="torchlike_gone"), "No module named 'torchlike_gone'"),
        (replace(METHOD, owner="torchlike:Gone"), "module 'torchlike' has no attribute 'Gone'"),
        (replace(METHOD, attribute="gone"), "torchlike:Owner has no gone"),
        (replace(METHOD, takes=("left",)), "it takes (self, node1, node2), not left"),
        (replace(METHOD, attribute="flag", of_instances=True), ""),
        (replace(METHOD, attribute="gone", of_instances=True), "torchlike:Owner has no gone"),
    ],
)
def test_a_patch_says_why_it_does_not_fit(patch: Patch, problem: str) -> None:
    assert misfit(patch) == problem


def test_a_replacement_by_a_script_may_take_other_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Owner, "method", lambda self, a, b: "theirs")
    assert misfit(METHOD) == ""


def test_a_patch_that_does_not_fit_is_skipped_with_an_event(module: Any, tmp_path: Path) -> None:
    with patched(replace(METHOD, takes=("left",)), marking("ours"), EventLog(tmp_path)):
        assert Owner().method("a", "b") == "a b"
    (path,) = tmp_path.glob("events*.jsonl")
    (event,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert event["event"] == "fallback"
    assert event["data"] == {
        "what": "torchlike.Owner.method is not patched",
        "reason": "it takes (self, node1, node2), not left; without it: no pairs",
    }
