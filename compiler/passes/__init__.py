"""Passes on the ATen graph, one per file, in the order in which they run.

A pass is a function that changes a graph and returns whether it did. Contract: the graph is valid
before and after, and every node has a fake value in meta["val"]. The outputs keep their values,
dtypes, sizes and strides; only tensors that forward saves for backward may change strides
(`replacement.strided_as_eager`, `strides.restride`). Graphs are functional except for updates of
inputs at the end, which the last pass moves. Each file states what its pass matches and guarantees.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from tcdebug.compiler.passes.algebraic import algebraic
from tcdebug.compiler.passes.aligned_products import aligned_products
from tcdebug.compiler.passes.channels_last import channels_last
from tcdebug.compiler.passes.common_subexpressions import common_subexpressions
from tcdebug.compiler.passes.constant_folding import constant_folding
from tcdebug.compiler.passes.dead_code import dead_code
from tcdebug.compiler.passes.float32_products import float32_products
from tcdebug.compiler.passes.joined_pieces import joined_pieces
from tcdebug.compiler.passes.noop_elimination import noop_elimination
from tcdebug.compiler.passes.redundant_views import redundant_views
from tcdebug.compiler.passes.unfused_bias import unfused_bias
from tcdebug.compiler.passes.updates_in_place import updates_in_place

Pass = Callable[[fx.Graph], bool]

PASSES: tuple[Pass, ...] = (
    noop_elimination,
    redundant_views,
    algebraic,
    joined_pieces,
    unfused_bias,
    aligned_products,
    float32_products,
    constant_folding,
    channels_last,
    common_subexpressions,
    dead_code,
    updates_in_place,
)
