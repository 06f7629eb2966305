"""Names of the layers that can be switched off in a whole script.

A layer is switched off like a unit. The same name works for a rerun, for `--off` of a repro and for
`tcdebug.switched_off`.
"""

from __future__ import annotations

from collections.abc import Mapping

SCRIPT = "layer.script"
"""The user's program. This name means that it fails in the same way in eager."""
DYNAMO = "layer.dynamo"
"""Dynamo. With it switched off, the user's torch.compile does nothing."""
WRAPPER = "layer.dynamo.wrapper"
"""What torch.compile returns. With it switched off, that is the function or module itself."""
DYNAMO_CODE = "layer.dynamo.code"
"""The code that Dynamo makes. With it switched off, Dynamo captures the calls, which count as
compiles, and the program runs in eager."""
OPERATORS = "layer.dynamo.operators"
"""Dynamo's capture of what torch.cond, while_loop, scan and map are given, which torch has done in
eager too. With it switched off, Python calls these functions there."""
COMPILED_AUTOGRAD = "layer.dynamo.compiled_autograd"
"""Compiled autograd. With it switched off, autograd runs backward as in eager."""
AUTOGRAD = "layer.autograd"
"""AOTAutograd."""
AUTOGRAD_BACKWARD = "autograd.backward"
"""The unit of AOTAutograd that makes a graph one node of autograd. Searches do not decide it."""
FAKE_KERNELS = "autograd.fake_kernel"
"""The fake kernels of all operators; the prefix of their units. Searches over all units of
AOTAutograd do not decide them."""
DECOMPOSITIONS = "layer.decompositions"
"""The decompositions and the partition into forward and backward."""
BACKEND = "layer.backend"
"""Everything that a backend does with the graphs of AOTAutograd."""
BACKEND_CONTROL = f"{BACKEND}.control"
"""Inputs and results of operators as they are. With it switched off, a kernel of inductor copies
each input, and what each operator returns that is called as in eager. That changes no value."""

STAND_INS: dict[str, str] = {
    AUTOGRAD: "eager",
    DECOMPOSITIONS: "aot_eager",
    BACKEND: "aot_eager_decomp_partition",
}
"""Layer -> the backend of torch that runs everything before that layer; the first layer first."""

EXPORT = "layer.export"
"""torch.export. With it switched off, an exported program is the module that it was made of."""
AOTINDUCTOR = "layer.aotinductor"
"""What AOTInductor adds to inductor. With it switched off, torch.compile compiles the program."""
AOTINDUCTOR_BACKEND = "aotinductor"
"""The name of AOTInductor as a backend of torch.compile; see `targets.aotinductor`."""

PRECISION = "layer.precision"
"""The precision of graphs. With it switched off, they run in eager, in float64, and round once."""
ROUNDING = "layer.rounding"
"""How operators round. With it switched off, graphs run in eager, with noise in what they round."""

ROUNDING_CONTROLS: Mapping[str, str] = {name: f"{name}.control" for name in (PRECISION, ROUNDING)}
"""Such a layer -> the same run without the change of rounding. It must pass, or the other says
nothing about rounding."""

OWN_BRANCHES = "layer.own_branches"
"""The program's code for being compiled. With it switched off, the program runs in eager, and hears
in functions that it would compile that it is being compiled. Then that code runs in eager too."""

OWN_TIMES = "layer.own_times"
"""The program's measurements of time. With it switched off, the program runs in eager, and
functions that it would compile take longer: a second in the first call, a millisecond in others."""

OWN_CODE = (OWN_BRANCHES, OWN_TIMES)
"""What a program may do otherwise than in eager, although torch is right."""

OWN_RANDOM = "config.fallback_random"
"""The unit of the random numbers that inductor generates itself. Off means those of eager."""

PROGRAM_PASSES = "user"
"""All gated passes of the program, wherever they run; a prefix of their units."""

ORDER = (DYNAMO, *STAND_INS)
"""The layers in the order in which a compile passes through them."""

GUARDS: Mapping[str, str] = {layer: f"{layer}.guards" for layer in ORDER}
"""Layer -> its reuse of compiled code. With it switched off, every call is recompiled."""

CUDAGRAPHS = "cudagraphs"
"""The replay of CUDA graphs by inductor, which is a unit of its compiles too."""

CACHE = "layer.cache"
"""All compile caches below."""
CACHES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "layer.cache.aotautograd": (("torch._functorch.config", "enable_autograd_cache"),),
    "layer.cache.fx_graph": (
        ("torch._inductor.config", "fx_graph_cache"),
        ("torch._inductor.config", "fx_graph_remote_cache"),
    ),
    "layer.cache.autotune": (
        ("torch._inductor.config", "autotune_local_cache"),
        ("torch._inductor.config", "autotune_remote_cache"),
        ("torch._inductor.config", "bundled_autotune_remote_cache"),
    ),
    "layer.cache.precompile": (("torch._dynamo.config", "caching_precompile"),),
    "layer.cache.profile": (
        ("torch._dynamo.config", "automatic_dynamic_local_pgo"),
        ("torch._dynamo.config", "automatic_dynamic_remote_pgo"),
    ),
}
"""Cache -> the settings that are set to False to switch it off."""

LAYERS = (
    *(*ORDER, OPERATORS, COMPILED_AUTOGRAD, DYNAMO_CODE, WRAPPER, EXPORT, AOTINDUCTOR, SCRIPT),
    *(*GUARDS.values(), CACHE, *CACHES),
)
"""The layers whose names any toggle may have, besides that of CUDA graphs, which is a unit."""


def is_layer(name: str) -> bool:
    """Return whether a toggle names a layer rather than a unit of a backend."""
    return name.startswith("layer.")


CAPTURE = "a capture by Dynamo"
"""What a report and a mark call a capture that lasts."""
