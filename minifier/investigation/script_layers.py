"""Finds the layer of torch that makes a script fail, by running the script without some layers.

The script fails as it is. It then runs in eager, with torch's own backends instead of its own, and
with one kind of reuse off. The layer at fault is the one with which the script fails in the same
way and without which it passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tcdebug.minifier.cases.layer_names import (
    AOTINDUCTOR,
    AUTOGRAD,
    AUTOGRAD_BACKWARD,
    BACKEND,
    CACHE,
    CACHES,
    COMPILED_AUTOGRAD,
    CUDAGRAPHS,
    DECOMPOSITIONS,
    DYNAMO,
    DYNAMO_CODE,
    EXPORT,
    GUARDS,
    OPERATORS,
    ORDER,
    OWN_BRANCHES,
    OWN_TIMES,
    PROGRAM_PASSES,
    ROUNDING_CONTROLS,
    SCRIPT,
    WRAPPER,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.subjects.layer_texts import Off, described, evidence

Ask = Callable[[tuple[Off, ...]], Mapping[Off, Outcome]]
"""Runs the script once for each of several questions."""

EAGER_IS_NO_EVIDENCE = (
    "it fails in eager too, but it counts compiles or has a backend of its own, and in eager "
    "nothing is compiled: whether that is the same failure is unknown"
)
"""A note on a script that may fail in eager for another reason than when it is compiled."""

EAGER_COMPILES_NOTHING = (
    "the script counts compiles or has a backend of its own: it may fail differently in eager "
    "because nothing is compiled there"
)
"""A note on such a script if it fails in eager in another way than when it is compiled."""

WHICH_CACHE = "it passes with all caches off: one of them is at fault, or several are"
"""A note on a script whose search ended before each cache was switched off alone."""

REFUSALS = {
    "torch._dynamo.exc.UserError": "torch reports a mistake of the program: UserError",
    "torch._dynamo.exc.Unsupported": (
        "Dynamo does not support what the script does there: `tcdebug explain` in place of "
        "`tcdebug bisect` shows what torch suggests"
    ),
    "does not currently support double backward": (
        "torch does not support gradients of gradients through compiled code: the backend eager "
        "does, and so does a part of the program that is not compiled"
    ),
}
"""What is in a message with which torch refuses a program -> a note on it."""
RECOMPILED = re.compile(r"RecompileError|RecompileLimit|fail_on_recompile")
"""Occurs in the messages with which torch refuses to compile a function again."""


@dataclass(frozen=True)
class ScriptLayer:
    """A layer, and the runs that led to it: what was off, and how the script ended.

    `layer` is empty if the runs do not identify one. `settled` means that the script fails in the
    same way with the layer, and passes without it and without those in `also`.
    """

    layer: str
    runs: Mapping[Off, Outcome]
    settled: bool
    notes: tuple[str, ...] = ()
    also: Off = ()
    """Other layers with the same fault. The script passes only with all of them off."""

    @property
    def off(self) -> Off:
        """The layers that are off when the script passes."""
        return (self.layer, *self.also) if self.layer else ()


@dataclass
class LayerSearch:
    """A search for a layer, with the answers it has so far."""

    ask: Ask
    failure: Outcome
    runs: dict[Off, Outcome] = field(default_factory=dict)
    used: Callable[[], frozenset[str]] = frozenset
    """Which layers of those that only some scripts use it may use."""
    stuck: bool = False
    """Whether a capture or a pass does not end. Reuse of compiled code is then not at fault."""
    raised_alike: Callable[[], bool] = lambda: False
    """Returns whether the script raises at the same place in eager and as it is."""
    wrapped_alike: Callable[[], bool] = lambda: False
    """Returns whether the error that left compiled code last is that of eager, wrapped by Dynamo.
    """
    may_count: Callable[[], bool] = lambda: False
    """Returns whether the script may fail in eager only because nothing is compiled there."""
    ended_alike: Callable[[Off], bool] = lambda off: False
    """Returns whether the script raises at the same statement without layers and as it is."""
    may_share_caches: Callable[[], bool] = lambda: False
    """Returns whether a process of the script may read what another one wrote to a cache."""
    raised_uncompiled: bool = False
    """Whether it raised where its graphs were only recorded. A cache is hardly at fault then."""

    def find(self) -> ScriptLayer:
        """Ask the cheapest questions first. None of them runs the script's own backend.

        If the backend is at fault, `within_backend` asks about its caches and its reuse of code.
        """
        shared = not self.raised_uncompiled and self.may_share_caches()
        if shared and (found := self._in_cache()):
            return found
        self._run((DYNAMO,), (AUTOGRAD,))
        if self._same(DYNAMO):
            if PROGRAM_PASSES in self.used() and self._passes_with(PROGRAM_PASSES):
                return self._settled(PROGRAM_PASSES)
            if self._passes_with(WRAPPER):
                return self._settled(WRAPPER)
            if self._captured_in_eager():
                return self._settled(OPERATORS, DYNAMO)
            if not self.may_count():
                return self._settled(SCRIPT)
            if not (self._passes(AUTOGRAD) or self._passes_counted()):
                return ScriptLayer("", self.runs, False, (EAGER_IS_NO_EVIDENCE, *self._others()))
        if self._passes_counted():
            return self._settled(DYNAMO_CODE)
        if self._both_raise() and (self.raised_alike() or self._caught_alike()):
            return self._settled(SCRIPT)
        if self._passes(DYNAMO) and self._same(AUTOGRAD):
            if EXPORT in self.used() and self._passes_with(EXPORT):
                return self._settled(EXPORT)
            if COMPILED_AUTOGRAD in self.used() and self._passes_with(COMPILED_AUTOGRAD):
                return self._settled(COMPILED_AUTOGRAD)
            # a script that measures times calls often, and recompiling every call takes long
            return self._settled(DYNAMO) if self._measures() else self._with_guards(DYNAMO)
        self._run((DECOMPOSITIONS,), (BACKEND,))
        lowest = next((layer for layer in ORDER if self._same(layer)), "")
        passing = [layer for layer in ORDER if self._passes(layer)]
        if not lowest:
            if BACKEND in passing:
                return self._settled(BACKEND)
            if DECOMPOSITIONS in passing:  # what replaces the backend fails in a way of its own
                part = self.within_backend()
                return part if part.layer != BACKEND else self._unsettled(passing)
            return self._in_doubt(passing)
        layer = ORDER[ORDER.index(lowest) - 1]
        if layer not in passing:
            return self._in_doubt([p for p in passing if ORDER.index(p) < ORDER.index(lowest)])
        return self._settled(layer) if layer == BACKEND else self._with_guards(layer)

    def _captured_in_eager(self) -> bool:
        """Return whether it fails in eager only because torch captures functions there too."""
        if OPERATORS not in self.used():
            return False
        self._run((OPERATORS, DYNAMO))
        return self._passes(OPERATORS, DYNAMO) and self._same(AUTOGRAD)

    def _in_cache(self) -> ScriptLayer | None:
        """Return the cache at fault if the script passes in eager, and without that cache.

        No other layer can be at fault then. Each run of several processes takes long, so the likely
        cache comes first.
        """
        likely, *others = ((name,) for name in CACHES)
        self._run((DYNAMO,), likely)
        if not self._passes(DYNAMO):
            return None
        if not self._passes(*likely):
            self._run((CACHE,), others[0])
            if not self._passes(CACHE):
                return None
            self._run(*(() if self._passes(*others[0]) else others[1:]))
        passing = (name for name in CACHES if (name,) in self.runs and self._passes(name))
        return self._settled(next(passing, CACHE))

    def _in_doubt(self, passing: list[str]) -> ScriptLayer:
        """Decide where the backends between those that pass and the failing one fail differently.

        AOTAutograd alone is one of them. Its backward is at fault if the script raises at the same
        statement with it, and passes without it.
        """
        alone = (DECOMPOSITIONS,)
        raised = self.failure.kind is self.runs[alone].kind is Kind.EXCEPTION
        if passing[-1:] == [AUTOGRAD] and raised and self.ended_alike(alone):
            self._run((AUTOGRAD_BACKWARD,), (DECOMPOSITIONS, AUTOGRAD_BACKWARD))
            alike = self._passes(DECOMPOSITIONS, AUTOGRAD_BACKWARD)
            if alike and self._passes(AUTOGRAD_BACKWARD):
                return self._settled(AUTOGRAD_BACKWARD)
        if passing[-1:] in ([DYNAMO], [AUTOGRAD]) and self._reused_wrongly(passing[-1]):
            return self._settled(GUARDS[passing[-1]])
        return self._unsettled(passing)

    def _reused_wrongly(self, layer: str) -> bool:
        """Return whether the script passes, with each backend, if every call is recompiled.

        What runs of wrong code lead to depends on the backend: inductor may return a wrong value
        where eager raises. The backend above comes first: with the script's own, many compiles may
        take longer than all other runs together.
        """
        if self.stuck or RECOMPILED.search(self.failure.message):  # dropped code is not counted
            return False
        guards, above = GUARDS[layer], ORDER[ORDER.index(layer) + 1]
        self._run((above, guards))
        return self._passes(above, guards) and self._passes_with(guards)

    def rejects_rounding(self) -> str:
        """Return how correctly rounded results fail in the same way; empty if they pass.

        A script may raise at the same statement, with a message that depends on results. A control
        that fails shows that the failure has another reason than rounding.
        """
        for layer, control in ROUNDING_CONTROLS.items():
            self._run((layer,))
            if self._raises_alike(layer) and self._passes_with(control):
                return layer
        return ""

    def _raises_alike(self, off: str) -> bool:
        """Return whether the script fails in the same way with a layer off, or at the same line."""
        raised = self.failure.kind is self.runs[off,].kind is Kind.EXCEPTION
        return self._same(off) or (raised and self.ended_alike((off,)))

    def own_code(self, layer: str) -> str:
        """Return what fails in eager too, if the runs led to `layer`: its own branch, or its times.

        Empty if neither does. Calls take longer if Dynamo itself is at fault, not a missing guard.
        """
        if self.failure.kind is not Kind.HANG and self._used_and_same(OWN_BRANCHES):
            return OWN_BRANCHES
        return OWN_TIMES if layer == DYNAMO and self._measures() else ""

    def _measures(self) -> bool:
        """Return whether the script fails in eager too if calls take as long as a short compile."""
        return self.failure.kind is Kind.EXCEPTION and self._used_and_same(OWN_TIMES)

    def _used_and_same(self, layer: str) -> bool:
        used = layer in self.used()
        return used and not self._passes_with(layer) and self._same(layer)

    def so_far(self) -> ScriptLayer:
        """Return what the runs so far show, after the budget ended the search."""
        known_before = BACKEND if (BACKEND,) in self.runs else DYNAMO
        right_before = (known_before,) in self.runs and self._passes(known_before)
        if right_before and (CACHE,) in self.runs and self._passes(CACHE):
            return ScriptLayer(CACHE, self.runs, False, (WHICH_CACHE, *self._others()))
        return self._unsettled([p for p in ORDER if (p,) in self.runs and self._passes(p)])

    def _with_guards(self, layer: str) -> ScriptLayer:
        """Decide between a layer and its reuse of code. The layer fails without those above it."""
        guards, above = GUARDS[layer], ORDER[ORDER.index(layer) + 1]
        if self._reused_wrongly(layer):
            return self._settled(guards)
        if (above, guards) not in self.runs or not self._passes(above, guards):
            return self._settled(layer)
        self._run((guards, CACHE))
        if self._passes(guards, CACHE):  # code that was recompiled came from a cache
            return self._settled(guards, CACHE)
        return self._settled(layer)

    def within_backend(self) -> ScriptLayer:
        """Narrow down the backend, if all layers before it are known to be right.

        Return AOTInductor, a cache, reuse of code, CUDA graphs, or the backend as a whole.
        """
        if AOTINDUCTOR in self.used() and self._passes_with(AOTINDUCTOR):
            return self._settled(AOTINDUCTOR)
        guards = GUARDS[BACKEND]
        self._run((CACHE,), (guards,))
        if self._passes(CACHE):
            likely, *others = CACHES
            for some in ([likely], others[:1], others[1:]):
                self._run(*((name,) for name in some))
                if found := next((name for name in some if self._passes(name)), ""):
                    return self._settled(found)
            return self._settled(CACHE)
        rest = guards if self._passes(guards) else BACKEND
        if rest == BACKEND and CUDAGRAPHS not in self.used():
            return self._settled(BACKEND)
        # code that is recompiled replays nothing, but a CUDA graph may fail when it is recorded
        return self._settled(CUDAGRAPHS if self._passes_with(CUDAGRAPHS) else rest)

    def _run(self, *questions: Off) -> None:
        fresh = tuple(q for q in questions if q not in self.runs)
        self.runs |= self.ask(fresh)

    def _passes_with(self, off: str) -> bool:
        self._run((off,))
        return self._passes(off)

    def _passes(self, *off: str) -> bool:
        return self.runs[off].kind is Kind.OK

    def _same(self, *off: str) -> bool:
        return off in self.runs and self.failure.same_bug(self.runs[off])

    def _passes_counted(self) -> bool:
        """Return whether it passes in eager only if its compiles are counted, and Dynamo fails."""
        possible = self._same(AUTOGRAD) and not self._passes(DYNAMO) and self.may_count()
        return possible and self._passes_with(DYNAMO_CODE)

    def _both_raise(self) -> bool:
        """Return whether the script ends in an exception in eager and as it is."""
        return self.runs[(DYNAMO,)].kind is self.failure.kind is Kind.EXCEPTION

    def _caught_alike(self) -> bool:
        """Return whether the script catches one error in eager and as it is, and ends alike."""
        same_status = self.runs[(DYNAMO,)].message == self.failure.message
        return (same_status or self.ended_alike((DYNAMO,))) and self.wrapped_alike()

    def _settled(self, layer: str, *also: str) -> ScriptLayer:
        notes = [evidence(layer)]
        if also:
            notes.append(f"with the script's backend it passes only {described((layer, *also))}")
        known = (SCRIPT, PROGRAM_PASSES, WRAPPER, DYNAMO_CODE, OPERATORS)
        if layer not in known and self._same(DYNAMO):
            notes.append(EAGER_IS_NO_EVIDENCE)
        notes += [note for refusal, note in REFUSALS.items() if refusal in self.failure.message]
        return ScriptLayer(layer, self.runs, True, (*notes, *self._others()), also)

    def _unsettled(self, passing: list[str]) -> ScriptLayer:
        """Name the last layer that passes. Any later layer may be at fault too."""
        layer = passing[-1] if passing else ""
        note = (
            f"it is {layer} or a later one" if layer else "the runs do not show which layer it is"
        )
        notes = [note, EAGER_COMPILES_NOTHING] if self._fails_otherwise_in_eager() else [note]
        return ScriptLayer(layer, self.runs, False, (*notes, *self._others()))

    def _fails_otherwise_in_eager(self) -> bool:
        """Return whether the script fails differently in eager, perhaps as it counts compiles."""
        if (DYNAMO,) not in self.runs or self._passes(DYNAMO) or self._same(DYNAMO):
            return False
        return self.may_count()

    def _others(self) -> tuple[str, ...]:
        """Describe the runs that failed in a different way."""
        return tuple(
            f"it fails differently {described(off)}: {' '.join(outcome.message.split())[:160]}"
            for off, outcome in self.runs.items()
            if outcome.kind is not Kind.OK and not self.failure.same_bug(outcome)
        )
