"""Writes a case as a repro script.

The script judges itself in a process of its own, and its exit status says whether it still fails in
the same way. It imports its judge from tcdebug, or contains it; see `standalone`. It is announced
only after it has been run; see `verify.verify`.
"""

from __future__ import annotations

import difflib
import inspect
import platform
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, needs_own_dtypes
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.placement import devices
from tcdebug.minifier.cases.source import module_source, readable_names
from tcdebug.minifier.cases.stored import save_tensors
from tcdebug.minifier.judging.further_calls import MOST_CALLS, can_be_repeated
from tcdebug.minifier.judging.validation import ACCEPTED
from tcdebug.minifier.repros.claims import CULPRIT, passes_without
from tcdebug.minifier.repros.inputs_text import InputsText
from tcdebug.minifier.repros.repro_judging import (
    SpeedLimits,
    expected_exception,
    judging_arguments,
)
from tcdebug.minifier.repros.standalone import importing_text, standalone
from tcdebug.minifier.repros.verify import SECONDS
from tcdebug.minifier.targets.aotinductor import aotinductor
from tcdebug.minifier.targets.entries import ENTRIES

USING_INDUCTOR = ("inductor", AOTINDUCTOR_BACKEND, *ENTRIES, None)
"""Backends that may keep graphs in inductor's caches. None stands for an object of the script."""
MOST_CHANGES = 12
"""The number of lines shown of the difference from a passing graph."""
VALUES = ("wrong value", "wrong nan", "wrong inf")
"""The ends of signatures of failures that a comparison of values has shown."""
ACCEPTS = f"forward | {ACCEPTED} | "
"""The beginning of the signature of inputs that compiled code accepts and eager does not."""
ENDED = " | ended"
"""The end of a signature if the process ended in an unknown way."""


@dataclass(frozen=True)
class Repro:
    """The contents of a repro script besides the case."""

    outcome: Outcome
    call: dict[str, Any]
    """The arguments of torch.compile in the script."""
    culprits: tuple[str, ...] = ()
    """Units that must be off for it to pass."""
    ambient: Ambient = field(default_factory=Ambient)
    setup: str = ""
    """Python that sets up what the failure needs besides the graph."""
    seconds: float = SECONDS
    """The time limit of a run in seconds. A longer run is a hang."""
    limits: SpeedLimits = field(default_factory=SpeedLimits)
    off: tuple[str, ...] = ()
    """Toggles that are always in force when the script runs."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the failure needs."""
    passing: Case | None = None
    """The nearest passing case. The script shows how it differs."""
    runs: int = 1
    """The number of runs that must pass for "does not fail": more than one for a flaky failure."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Settings of inductor that tcdebug adds to the script's."""
    draws_as_eager: bool = True
    """Whether the compiled graph draws the random numbers of eager."""

    @property
    def own_draws(self) -> bool:
        """Whether values are not compared, because they depend on other random numbers.

        Whether the graph draws any is known only for a wrong result.
        """
        if self.draws_as_eager or self.outcome.signature.endswith(VALUES):
            return False
        return self.outcome.drew or self.outcome.kind is not Kind.WRONG

    standalone: bool = False
    """Whether the script contains its judge, and so runs where tcdebug is not installed."""


def expected(outcome: Outcome) -> dict[str, Any]:
    """Return what the script compares its result with. A list holds alternatives."""
    match outcome.kind:
        case Kind.BAD:
            return {}  # the user's command judges
        case Kind.CRASH if outcome.signature.endswith(ENDED):
            return {"kind": ["crash", "hang"]}
        case Kind.WRONG if outcome.signature.startswith(ACCEPTS):
            name, _, what = outcome.signature.removeprefix(ACCEPTS).partition(" | ")
            return {"kind": "accepted", "class": name, "what": what}
        case Kind.WRONG:
            return {"kind": "wrong", "what": outcome.signature}
        case Kind.EXCEPTION:
            return {"kind": "exception", **expected_exception(outcome)}
    return {"kind": outcome.kind.value}


def write(case: Case, repro: Repro, path: Path, *, store: bool = False) -> str:
    """Write the script, and a data file beside it if the failure needs stored data.

    With `store`, all tensors are stored. Returns the origin of the inputs: seeded, inlined or
    stored.
    """
    case = readable_names(case)
    path.parent.mkdir(parents=True, exist_ok=True)
    given = InputsText.of(case, store=store, inference=repro.ambient.inference)
    source = module_source(case.module)
    constants = source.constants
    if given.stored or constants:
        save_tensors({**given.stored, **constants}, path.with_suffix(".safetensors"))
    template = string.Template((resources.files(__package__) / "repro.py.tmpl").read_text())
    text = template.substitute(
        title=_title(repro),
        facts="\n".join(_facts(case, repro)),
        run=_RUN_HEALTHY if repro.outcome.kind is Kind.OK else _RUN_FAILING,
        name=path.name,
        usage=_usage(repro),
        imports="import importlib\nimport os\nimport sys"
        if repro.setup
        else "import os\nimport sys",
        environment=(_NO_CACHES if repro.call["backend"] in USING_INDUCTOR else "")
        + environment.text(repro.variables),
        expected=repr(expected(repro.outcome)),
        call=repr(repro.call),
        setup=_backend_text(repro.call) + repro.setup,
        graph="\n".join(
            [*dict.fromkeys([*source.imports, *given.rebuilt.imports]), "", "", source.text]
        ),
        inputs=given.text(has_data=bool(given.stored or constants)),
        **_judging_texts(case, repro, given, path.name),
    )
    text = standalone(text) if repro.standalone else text
    path.write_text(text)
    return given.kind


def _judging_texts(case: Case, repro: Repro, given: InputsText, name: str) -> dict[str, str]:
    """Return the parts of the template that import the judge and call it.

    An argument is left out if it has the default value of the judge.
    """
    own_dtypes = needs_own_dtypes(case.module)
    settings = {
        "prepare": "prepare" if repro.ambient.text() else "",
        "set_up": "set_up" if repro.setup else "",
        "seconds": repr(repro.seconds) if repro.seconds != SECONDS else "",
        "runs": repr(repro.runs) if repro.runs > 1 else "",
        "calls": repr(MOST_CALLS) if devices(case) and can_be_repeated(case) else "",
        "off": repr(list(repro.off)) if repro.off else "",
        "units": repr(list(repro.culprits)) if repro.culprits else "",
        "added": repr(dict(repro.added)) if repro.added else "",
        "own_draws": "nonfinite" if repro.own_draws else "",
        "validation": "accepted" if repro.outcome.signature.startswith(ACCEPTS) else "",
        "on_device": "True" if devices(case) else "",
        "widens": "" if given.can_be_widened and not own_dtypes else "False",
        **judging_arguments(case, repro.outcome, repro.limits),
    }
    lines = [f"{name}={value}" for name, value in settings.items() if value]
    first = "Graph, inputs, EXPECTED, CALL"
    imports = [("graph_judge", "judge"), *(OPTIONAL[k] for k in OPTIONAL if settings.get(k))]
    return {
        "importing": importing_text(imports, name),
        "arguments": "\n        ".join(["", f"{first},", *(f"{line}," for line in lines)])
        + "\n    "
        if lines
        else first,
        "prepare": f"\n{_PREPARE}{_indented(repro.ambient.text())}\n\n"
        if settings["prepare"]
        else "",
    }


def _backend_text(call: Mapping[str, Any]) -> str:
    """Return the definition of a backend that torch does not register."""
    given = {AOTINDUCTOR_BACKEND: aotinductor, **ENTRIES}.get(call["backend"])
    if given is None:
        return ""
    source = inspect.getsource(given)
    return f"from typing import Any\n\n\n@torch._dynamo.register_backend\n{source}\n\n"


_RUN_FAILING = """It exits with 1 if it fails like this, with 0 if it does not fail,
and with 125 if it cannot tell (eager fails, or it fails in a different way)."""

_RUN_HEALTHY = """It exits with 0 if it passes, with 1 if it fails, and with 125
if it cannot tell (eager fails)."""

WITHOUT_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""The variables that a script for inductor sets before it imports torch."""
_NO_CACHES = f"""
# graph caches do not know what a script has patched
{" = ".join(f'os.environ["{name}"]' for name in WITHOUT_CACHES)} = "0"
"""


_PREPARE = """def prepare():
    \"\"\"Set the global state of torch in which the failure occurred.\"\"\"
"""
OPTIONAL = {
    "speed": ("speed", "Speed"),
    "layout": ("layout", "layout"),
    "watch": ("endless", "watch"),
    "own_draws": ("nonfinite", "nonfinite"),
    "validation": ("validation", "accepted"),
}
"""Argument of the judge -> the module and the name that a script imports for it."""


def _title(repro: Repro) -> str:
    outcome = repro.outcome
    if outcome.kind is Kind.OK:
        return "A graph that torch.compile gets right"
    words = {
        Kind.WRONG: "A wrong result",
        Kind.EXCEPTION: "An exception",
        Kind.CRASH: "A crash",
        Kind.HANG: "A hang",
        Kind.KILLED: "Too much memory",
        Kind.SLOW: "A slow graph",
        Kind.RECOMPILE: "An unnecessary recompile",
    }
    what = "A slow compile" if outcome.compiles_slowly else words.get(outcome.kind, "A failure")
    return f"{what} of torch.compile: {outcome.signature}"


def _facts(case: Case, repro: Repro) -> list[str]:
    failure = f"{repro.outcome.kind.value}, {repro.outcome.direction}: "
    lines = [
        f"failure   {failure}{' '.join(repro.outcome.message.split())[:200]}",
        f"backend   {repro.call}",
        *([f"added     {dict(repro.added)}, by tcdebug"] if repro.added else []),
        f"graph     {case.size} nodes, {len(case.inputs)} inputs",
        f"versions  torch {torch.__version__}, python {platform.python_version()}, "
        f"{platform.machine()}",
    ]
    if repro.culprits:
        lines.insert(1, f"{CULPRIT}{', '.join(repro.culprits)}")
    if repro.outcome.kind is Kind.OK:
        del lines[0]
    if repro.passing is not None:
        lines += ["", "The nearest graph that passes differs in:", *_changes(case, repro.passing)]
    return [line.replace("\\", "/").replace('"""', "'''") for line in lines]


def _changes(case: Case, passing: Case) -> list[str]:
    """Return how the graph of a passing case differs: - marks lines of `case`, + of `passing`."""
    here = module_source(case.module).classes.splitlines()
    there = module_source(readable_names(passing).module).classes.splitlines()
    changes = [
        f"    {line[0]} {line[1:].strip()}"
        for line in difflib.unified_diff(here, there, n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    more = len(changes) - MOST_CHANGES
    changes[MOST_CHANGES:] = [f"    and {more} more lines"] if more > 0 else []
    return changes or ["    only its inputs"]


def write_passing(case: Case, repro: Repro, path: Path) -> str:
    """Write the script of a passing case, to go beside that of the failing one; see `write`."""
    content = replace(repro, outcome=Outcome(Kind.OK), culprits=(), passing=None)
    return write(case, content, path)


def _usage(repro: Repro) -> str:
    return f"\n{passes_without(repro.culprits)}" if repro.culprits else ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
