"""Writes hooks of tensors so that Dynamo captures them again.

Dynamo captures `y.register_hook(hook)` as an operator that is given the graph of the hook and the
values that it reads, and returns `y`. It does not accept this operator itself.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import cast

from torch import fx

OPERATOR = "register_hook"
"""The operator and the method of a tensor. Versions of torch before 2.13 have no such operator."""


def hooks_restored(graph: fx.Graph, known: Mapping[str, object]) -> None:
    """Replace operators that register a hook by calls of the method; `known` are attributes."""
    for node in list(graph.nodes):
        if node.op != "call_function" or str(node.target) != OPERATOR:
            continue
        tensor, hook, *read = cast(list[fx.Node], [*node.args])
        body = known[str(hook.target)]
        assert isinstance(body, fx.GraphModule)
        _, *names = (str(p.target) for p in body.graph.nodes if p.op == "placeholder")
        with graph.inserting_before(node):
            if read:
                given = zip(names, read, strict=True)
                hook = graph.call_function(functools.partial, (hook,), dict(given))
            graph.call_method(OPERATOR, (tensor, hook))
        node.replace_all_uses_with(tensor)
        graph.erase_node(node)
