"""Passes on the graph that Dynamo captured, which calls torch functions and methods.

They run before autograd. A pass is a function that changes a graph and returns whether it did.
Contract: the graph is valid before and after, with the same values, gradients and aliasing of its
outputs. Nodes carry Dynamo's fake tensors in meta["example_value"].
"""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from tcdebug.compiler.pregrad.dropout_removal import dropout_removal
from tcdebug.compiler.pregrad.fused_attention import fused_attention
from tcdebug.compiler.pregrad.masked_index_fill import masked_index_fill
from tcdebug.compiler.pregrad.redundant_casts import redundant_casts
from tcdebug.compiler.pregrad.redundant_masks import redundant_masks
from tcdebug.compiler.pregrad.separate_interpolation import separate_interpolation
from tcdebug.compiler.pregrad.whole_interpolation import whole_interpolation

Pass = Callable[[fx.Graph], bool]

PREGRAD_PASSES: tuple[Pass, ...] = (
    dropout_removal,
    redundant_casts,
    fused_attention,
    whole_interpolation,
    separate_interpolation,
    redundant_masks,
    masked_index_fill,
)
