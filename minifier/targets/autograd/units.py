"""The units of AOTAutograd that are known before a compile."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.minifier.cases.layer_names import AUTOGRAD_BACKWARD, FAKE_KERNELS
from tcdebug.minifier.targets.autograd.aliases import BASE, OUTPUT
from tcdebug.minifier.targets.autograd.decompositions import UNIT as DECOMPOSITION
from tcdebug.minifier.targets.autograd.functionalization import UNIT as FUNCTIONALIZATION
from tcdebug.minifier.targets.autograd.scalars import UNIT as SCALARS
from tcdebug.minifier.targets.autograd.tracing import AUTOCAST, MUTATION, SETTING

AUTOGRAD_UNITS: Mapping[str, str] = {
    SETTING: f"{SETTING}.NAME: each AOTAutograd setting that a script or variable changed",
    MUTATION: "update inputs inside the graph instead of after it",
    AUTOCAST: "trace backward under the autocast state of forward",
    DECOMPOSITION: f"{DECOMPOSITION}.OPERATOR: trace an operator through its Python kernel",
    FUNCTIONALIZATION: f"{FUNCTIONALIZATION}.OPERATOR: functionalise an update by its own kernel",
    SCALARS: "turn arithmetic on symbolic numbers into arithmetic on tensors",
    FAKE_KERNELS: f"{FAKE_KERNELS}.OPERATOR: describe the result of an operator by its fake kernel",
    BASE: "recreate inputs that share memory from one base by the views that autograd recorded",
    OUTPUT: "recreate an output that is a view by the view operators that the trace recorded",
    AUTOGRAD_BACKWARD: "make a graph one node of autograd; off: autograd records its operators",
}
"""Unit -> what it does, in the order of the pipeline."""
