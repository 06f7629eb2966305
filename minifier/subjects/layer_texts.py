"""Says in plain words what runs of a script without some layers showed."""

from __future__ import annotations

from collections.abc import Sequence

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
    OWN_BRANCHES,
    OWN_TIMES,
    PRECISION,
    PROGRAM_PASSES,
    ROUNDING,
    ROUNDING_CONTROLS,
    SCRIPT,
    STAND_INS,
    WRAPPER,
)

Off = tuple[str, ...]
"""The layers that are off in a run."""
EVIDENCE = {
    SCRIPT: "it fails in the same way in eager",
    PROGRAM_PASSES: "passes of the program: it passes with all gated passes off",
    EXPORT: "torch.export: it passes with the modules in place of their exported programs",
    AOTINDUCTOR: "AOTInductor: it passes with torch.compile and inductor in place of its packages",
    DYNAMO: "Dynamo: it fails with the backend eager, and passes in eager",
    OPERATORS: (
        "Dynamo: it fails in eager too, where torch has Dynamo capture the functions given to "
        "torch.cond and the like, and passes in eager if Python calls them"
    ),
    DYNAMO_CODE: (
        "Dynamo: it fails with the backend eager, and passes in eager if Dynamo captures each call "
        "so that its compiles are counted"
    ),
    WRAPPER: (
        "what torch.compile returns: it fails even if nothing is compiled, and passes if "
        "torch.compile returns the function or module itself"
    ),
    COMPILED_AUTOGRAD: (
        "compiled autograd: it fails with the backend eager, and passes if autograd runs backward "
        "as in eager"
    ),
    AUTOGRAD: "AOTAutograd: it fails with the backend aot_eager, and passes with eager",
    AUTOGRAD_BACKWARD: (
        "AOTAutograd fails without a backend too, in a different way; without its backward the "
        "script passes, with AOTAutograd alone and as it is"
    ),
    DECOMPOSITIONS: (
        "decompositions or the partition: it fails with aot_eager_decomp_partition, and passes "
        "with aot_eager"
    ),
    BACKEND: "the backend: it passes with aot_eager_decomp_partition",
    GUARDS[DYNAMO]: (
        "a guard is missing in Dynamo: it passes if every call is recompiled, even with the "
        "backend eager"
    ),
    GUARDS[AUTOGRAD]: (
        "AOTAutograd depends on something that no guard checks: it passes if every call is "
        "recompiled, even with the backend aot_eager"
    ),
    GUARDS[DECOMPOSITIONS]: (
        "decompositions depend on something that no guard checks: it passes if every call is "
        "recompiled, even with the backend aot_eager_decomp_partition"
    ),
    GUARDS[BACKEND]: (
        "the backend's code is reused for a call for which it is wrong: it passes if every call is "
        "recompiled"
    ),
    CUDAGRAPHS: "CUDA graphs: it passes if every kernel is launched",
    PRECISION: (
        "the script also fails in eager if its graphs compute in float64 and round once: it "
        "rejects correctly rounded results"
    ),
    ROUNDING: (
        "the script also fails in eager if each operator rounds slightly differently: it rejects "
        "correctly rounded results"
    ),
    OWN_BRANCHES: (
        "the script also fails in eager if torch.compiler.is_compiling() is true there: the code "
        "for that case is at fault, not torch"
    ),
    OWN_TIMES: (
        "the script also fails in eager if its compiled functions take longer there, by a second "
        "in a first call and a millisecond in others: it measures times that include compiling"
    ),
    CACHE: "the compile caches together: it passes with all of them off",
}
"""Layer -> what the runs showed."""

RUNS = {
    **{layer: f"with the backend {backend}" for layer, backend in STAND_INS.items()},
    **dict.fromkeys(GUARDS.values(), "with every call recompiled"),
    DYNAMO: "in eager",
    OPERATORS: "with torch.cond and the like called by Python",
    DYNAMO_CODE: "in eager with its compiles counted",
    WRAPPER: "in eager without torch.compile's wrapper",
    CUDAGRAPHS: "without CUDA graphs",
    COMPILED_AUTOGRAD: "without compiled autograd",
    PROGRAM_PASSES: "without its gated passes",
    AUTOGRAD_BACKWARD: "without AOTAutograd's backward",
    PRECISION: "in eager with its graphs in float64",
    ROUNDING: "in eager with rounding noise in its graphs",
    ROUNDING_CONTROLS[PRECISION]: "in eager with its graphs computed twice",
    ROUNDING_CONTROLS[ROUNDING]: "with AOTAutograd alone and without noise",
    OWN_BRANCHES: "in eager with is_compiling() true",
    OWN_TIMES: "in eager with longer calls",
    EXPORT: "with nothing exported",
    AOTINDUCTOR: "with torch.compile in place of AOTInductor",
    CACHE: "with all caches off",
}
"""Layer -> how the script runs with it off."""


def evidence(layer: str) -> str:
    """Say what the runs showed about a layer."""
    if layer in CACHES:
        return f"a cache: it passes if {layer} alone is off"
    return EVIDENCE[layer]


def shown_by(layer: str) -> str:
    """Say which runs lead to a layer, without saying what the layer is."""
    what, _, runs = evidence(layer).partition(": ")
    return runs or what


def described(off: Off) -> str:
    """Describe how a run differs from the script as it is."""
    first, *others = [RUNS.get(name, f"with {name} off") for name in off] or ["as it is"]
    return " and ".join([first, *(other.removeprefix("with ") for other in others)])


def listed(runs: Sequence[str]) -> str:
    """Join descriptions of runs as a sentence does."""
    *first, last = runs
    if not first:
        return last
    apart = len(first) > 1 or any(" and " in run for run in runs)
    return f"{', '.join(first)}{', and' if apart else ' and'} {last}"
