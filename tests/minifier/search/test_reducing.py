"""A step whose result does not hold strictly is undone, and repeated strictly."""

from __future__ import annotations

import ast
from collections.abc import Callable

from virtual_time import VirtualTime

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.script_reducer import ScriptReducer
from tcdebug.minifier.search.reducing import CONFIRMING, Interesting, reduce_ahead

Asked = Callable[[tuple[str, ScriptText]], bool]
TEXT = "import torch\nseed(1)\nfirst(2)\nsecond(3)\nthird(4)"


def called(script: ScriptText) -> set[str]:
    """The names that a script calls."""
    nodes = ast.walk(ast.parse(script.text))
    return {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def reduced(jobs: int, *, strictly: bool) -> tuple[ScriptReducer, VirtualTime]:
    """A script reduced so that it calls `third`, and strictly `first` too."""

    def truth(question: tuple[str, ScriptText]) -> bool:
        how, script = question
        return {"fails": "third", "passes": "first"}[how] in called(script)

    def predicate(*checks: str) -> Callable[[Asked], Interesting[ScriptText]]:
        def interesting(ask: Asked) -> Interesting[ScriptText]:
            return lambda script, purpose: all(ask((how, script)) for how in checks)

        return interesting

    time = VirtualTime(truth, jobs, (True, False), key=lambda q: (q[0], q[1].key))
    reducer = ScriptReducer(ScriptText(TEXT), {}, EventLog(None))
    all_checks = predicate("fails", "passes") if strictly else None
    reduce_ahead(reducer, time.ask, time, predicate("fails"), all_checks)
    return reducer, time


def test_a_version_that_does_not_hold_strictly_is_not_kept() -> None:
    loose, _ = reduced(1, strictly=False)
    assert called(loose.best) == {"third"}
    for jobs in (1, 2):
        reducer, _ = reduced(jobs, strictly=True)
        assert called(reducer.best) == {"first", "third"}
        assert all({"first", "third"} <= called(version) for version in reducer.accepted)
        assert reducer.accepted[-1] == reducer.best


def test_what_must_hold_strictly_is_asked_about_once_for_each_step_that_holds() -> None:
    text = "import torch\n" + "\n".join(f"c{n}()" for n in range(30)) + "\nfirst()\nthird()"
    asked: list[str] = []

    def loosely(ask: object) -> Interesting[ScriptText]:
        return lambda script, purpose: {"first", "third"} <= called(script)

    def strictly(ask: object) -> Interesting[ScriptText]:
        def holds(script: ScriptText, purpose: str) -> bool:
            asked.append(purpose)
            return True

        return holds

    reducer = ScriptReducer(ScriptText(text), {}, EventLog(None))
    time = VirtualTime(bool, 1)
    reduce_ahead(reducer, time.ask, time, loosely, strictly)
    assert called(reducer.best) == {"first", "third"}
    assert set(asked) == {CONFIRMING} and len(asked) < len(reducer.accepted) <= 30


def test_a_search_ends_although_reductions_come_up_several_times_in_a_round() -> None:
    text = "import torch\nx = first(1)\ny = second(x)\nthird(y)"
    asked: list[str] = []

    def interesting(script: ScriptText, purpose: str) -> bool:
        asked.append(script.key)
        return script.text.count("\n") >= 3

    reducer = ScriptReducer(ScriptText(text), {}, EventLog(None))
    reducer.run(interesting)
    assert len(asked) == len(set(asked))
