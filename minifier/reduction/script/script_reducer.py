"""The reducer of scripts: all reductions of scripts, in their order."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction import CandidateReduction
from tcdebug.minifier.reduction.loop import ReductionLoop, Reductions
from tcdebug.minifier.reduction.script.bypassing import BypassModules
from tcdebug.minifier.reduction.script.dropping.inputs import ConstantInputs
from tcdebug.minifier.reduction.script.dropping.likely import texts_at
from tcdebug.minifier.reduction.script.dropping.statements import (
    DropStatements,
    KeepFirst,
    KeepNeeded,
    UnwrapBlocks,
)
from tcdebug.minifier.reduction.script.dropping.unreached import DropUnreached
from tcdebug.minifier.reduction.script.dropping.unused import DropUnused
from tcdebug.minifier.reduction.script.failures import RaisesToAssertions
from tcdebug.minifier.reduction.script.functions import (
    DropDecorations,
    DropParameters,
    DropResults,
    MethodsToFunctions,
)
from tcdebug.minifier.reduction.script.importing import ImportsByPackage
from tcdebug.minifier.reduction.script.inlining import InlineFunctions, InlineMethods
from tcdebug.minifier.reduction.script.loops import LoopsToExpressions, UnrollLoops
from tcdebug.minifier.reduction.script.objects.components import HoistComponents, UnwrapContainers
from tcdebug.minifier.reduction.script.objects.dissolving import DissolveObjects, MergeBases
from tcdebug.minifier.reduction.script.objects.held_values import ObjectsToValues
from tcdebug.minifier.reduction.script.objects.holding import FlattenObjects, InlineForwards
from tcdebug.minifier.reduction.script.objects.records import AttributesOfNewObjects
from tcdebug.minifier.reduction.script.randomness import ReplaceDraws
from tcdebug.minifier.reduction.script.rewriting import (
    SyntaxReduction,
    expressions,
    is_valid,
    undefined,
)
from tcdebug.minifier.reduction.script.specialising import (
    ConstantParameters,
    FoldConstants,
    SpecialiseCalls,
)
from tcdebug.minifier.reduction.script.surroundings import DropProgramArguments, StandAlone
from tcdebug.minifier.reduction.script.tables import DropEntries, LookUpEntries
from tcdebug.minifier.reduction.script.unfolding import (
    InlineContexts,
    ReplaceAliases,
    WriteOutComprehensions,
)
from tcdebug.minifier.reduction.script.validity.attributes import lost_attributes
from tcdebug.minifier.reduction.script.validity.comparability import (
    stays_comparable,
    stays_reseeded,
    stays_seeded,
)
from tcdebug.minifier.reduction.script.validity.endless import endless_loops
from tcdebug.minifier.reduction.script.values import (
    DropArguments,
    HoistOperands,
    InlineAttributes,
    InlineNames,
    ObservedLiterals,
    ShrinkNumbers,
)

MOST = 2
"""As many modules that cannot be bypassed end the step that bypasses them. They change values, of
which most must stay where values differ."""
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


class ScriptMeasure(NamedTuple):
    """The size of a script, the most significant component first."""

    together: bool
    """Whether it needs the folder of the original."""
    arguments: int
    statements: int
    """Statements, of which a block counts twice."""
    names: int
    """Reads of names."""
    nodes: int
    numbers: int
    """The sum of the integers."""


def measure(script: ScriptText) -> ScriptMeasure:
    """Measure a script."""
    tree = ast.parse(script.text)
    nodes = list(ast.walk(tree))
    found = [n for n in nodes if isinstance(n, ast.stmt) and not isinstance(n, ast.Pass)]
    values = [n.value for n in expressions(tree) if isinstance(n, ast.Constant)]
    return ScriptMeasure(
        together=not script.alone,
        arguments=len(script.args),
        statements=len(found) + sum(isinstance(n, BLOCKS) for n in found),
        names=sum(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) for n in nodes),
        nodes=len(nodes),
        numbers=sum(value for value in values if type(value) is int),
    )


def skeleton(script: ScriptText) -> object:
    """Return the kinds of the statements and the names read, which decide what can be removed."""
    nodes = list(ast.walk(ast.parse(script.text)))
    kinds = [type(n).__name__ for n in nodes if isinstance(n, ast.stmt)]
    names = sorted(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return kinds, names


def _coarse(
    seen: Mapping[str, str], likely: frozenset[str]
) -> tuple[CandidateReduction[ScriptText], ...]:
    """Return the reductions that remove most, in their order."""
    unused, look_up = DropUnused(), LookUpEntries()
    return (
        unused,
        UnwrapBlocks(loops=True),
        unused,
        ConstantInputs(seen),
        BypassModules(),
        unused,
        ObservedLiterals(seen),
        ConstantParameters(),
        FoldConstants(),
        look_up,
        unused,
        DropEntries(),
        KeepFirst(likely),
        InlineFunctions(),
        look_up,
        unused,
        InlineMethods(),
        InlineForwards(),
        InlineContexts(),
        HoistComponents(),
        unused,
        RaisesToAssertions(),
        KeepNeeded(),
        UnwrapBlocks(),
        LoopsToExpressions(),
        UnrollLoops(),
        look_up,
        unused,
        DropParameters(),
        DropResults(),
        unused,
        DropStatements(),
        ConstantParameters(),
        FoldConstants(),
        SpecialiseCalls(),
        ObservedLiterals(seen, asserted=True),
        unused,
        HoistOperands(calls=True),
        MethodsToFunctions(),
        MergeBases(),
        ObjectsToValues(),
        AttributesOfNewObjects(),
        FlattenObjects(),
        DissolveObjects(),
        UnwrapContainers(),
        unused,
    )


FINE: tuple[CandidateReduction[ScriptText], ...] = (
    StandAlone(),
    DropProgramArguments(),
    DropDecorations(),
    DropArguments(),
    ReplaceAliases(),
    WriteOutComprehensions(),
    LookUpEntries(),
    ShrinkNumbers(1, together=True),
    ShrinkNumbers(2, together=True),
    HoistOperands(calls=False),
    ShrinkNumbers(1, together=False),
    InlineNames(),
    InlineAttributes(),
    ImportsByPackage(),
    ReplaceDraws(),
)
"""The reductions of details, in their order."""


def _described(reduction: CandidateReduction[ScriptText], script: ScriptText) -> Sequence[str]:
    if isinstance(reduction, SyntaxReduction | KeepNeeded):
        return reduction.descriptions(script)
    return ()


class ScriptReducer(ReductionLoop[ScriptText]):
    """The search for a smaller script that is still interesting.

    `seen` maps the text of each expression to the literal value that a run observed. With
    `comparable`, settings of random numbers and precision stay, because results of the backend
    could otherwise differ from eager although nothing is wrong. A seed always stays if numbers are
    drawn, and is set again if the original does so and numbers are drawn in each call. `raised` are
    the lines of the stack with which the script raised, and `at_fault` the texts of statements that
    Dynamo captures wrongly, as far as these are known.
    """

    def __init__(
        self,
        script: ScriptText,
        seen: Mapping[str, str],
        log: EventLog,
        comparable: bool = False,
        raised: frozenset[int] = frozenset(),
        at_fault: frozenset[str] = frozenset(),
    ) -> None:
        self._likely = at_fault | texts_at(ast.parse(script.text), raised)
        allowed, endless = undefined(script.text), endless_loops(script.text)

        def valid(candidate: ScriptText) -> bool:
            if not is_valid(candidate, allowed) or endless_loops(candidate.text) - endless:
                return False
            if lost_attributes(candidate.text, script.text):
                return False
            if not stays_reseeded(candidate.text, script.text):
                return False
            if comparable:
                return stays_comparable(candidate.text, script.text)
            return stays_seeded(candidate.text, script.text)

        reductions = Reductions(
            coarse=(DropUnreached(script.key, raised), *_coarse(seen, self._likely)),
            fine=FINE,
            measure=measure,
            skeleton=skeleton,
            is_valid=valid,
            unit="lines",
            described=_described,
            most_needed=lambda reduction: MOST if isinstance(reduction, BypassModules) else None,
        )
        super().__init__(script, reductions, log)

    def continue_with(self, seen: Mapping[str, str]) -> None:
        """Continue from the end with the values that a run of the best version observed.

        An expression that had several values in the original may have only one in a small version,
        such as the variable of a loop that has become its first iteration.
        """
        coarse = _coarse(seen, self._likely)
        self._reductions = replace(self._reductions, coarse=coarse)
        self._left = [r for r in coarse if isinstance(r, ObservedLiterals | ConstantInputs)]
