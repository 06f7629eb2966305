"""Gives a value different strides from eager's and adapts its readers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import may_share_memory, may_write
from tcdebug.compiler.passes.replacement import STRIDE_SENSITIVE

aten = torch.ops.aten


def restride(graph: fx.Graph, node: fx.Node, value: Any, *, results: bool) -> None:
    """Set the fake value of a node to one with different strides, and update the views of it.

    Readers that cannot take the new strides read a dense copy: views that these strides do not
    allow, operators that may depend on strides, and the outputs of the graph, unless `results`.
    """
    node.meta["val"] = value
    unable: list[fx.Node] = []
    for user in list(node.users):
        if user.op == "output":
            unable += [] if results else [user]
        elif may_write(user) or user.target in STRIDE_SENSITIVE:
            unable.append(user)
        elif may_share_memory(user):
            viewed = _viewed(user)
            if viewed is None:
                unable.append(user)
            else:
                restride(graph, user, viewed, results=results)
    if unable:
        with graph.inserting_before(min(unable)):
            copy = graph.call_function(aten.clone.default, (node,))
        copy.meta = {**node.meta, "val": aten.clone.default(value)}
        for user in unable:
            user.replace_input_with(node, copy)


def _viewed(user: fx.Node) -> Any:
    """Return the fake result of a view of its current operand; None if the view is impossible.

    Also None for symbolic sizes, because comparing them would add guards.
    """
    if any(map(_is_symbolic, (operand.meta["val"] for operand in user.all_input_nodes))):
        return None
    args, kwargs = fx.map_arg((user.args, user.kwargs), lambda operand: operand.meta["val"])
    function: Any = user.target
    try:
        return function(*args, **kwargs)
    except (RuntimeError, ValueError):  # fake kernels of views raise either
        return None


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_symbolic, value))
    if isinstance(value, torch.Tensor):
        return not all(isinstance(n, int) for n in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt)
